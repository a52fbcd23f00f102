package resolve_test

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const hostLabel = "system_u:object_r:container_file_t:s0"

func level(l string) *corev1.SecurityContext {
	return &corev1.SecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: l}}
}

// labelWorld returns a volume of one pod, with a driver that mounts with labels.
func labelWorld(t *testing.T, modes ...corev1.PersistentVolumeAccessMode) *world {
	t.Helper()
	w := read(t, "testdata/base.yaml")
	w.config.SELinux = resolve.SELinux{FileLabel: hostLabel}
	w.driver(storagev1.CSIDriverSpec{SELinuxMount: ptr(true)})
	w.volume().Spec.AccessModes = modes
	w.pod().Spec.SecurityContext = &corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: "s0:c1,c2"}}
	return w
}

// TestWhichVolumesAreLabelledWhenTheyAreMounted: a label needs SELinux on the host, the driver's support, the pod's
// options, and an allowed access mode.
//
// Items: H01, H03, H04, H05, H06, H12, H14, H17, Q05.
// Scenarios: U-93, U-95, U-96, U-97, U-98, U-99.
func TestWhichVolumesAreLabelledWhenTheyAreMounted(t *testing.T) {
	const want = "system_u:object_r:container_file_t:s0:c1,c2"
	one, many := corev1.ReadWriteOncePod, corev1.ReadWriteMany
	policy := func(p corev1.PodSELinuxChangePolicy) func(*world) {
		return func(w *world) { w.pod().Spec.SecurityContext.SELinuxChangePolicy = &p }
	}
	all := func(w *world) { w.config.SELinux.AllModes = true }
	for name, tc := range map[string]struct {
		mode   corev1.PersistentVolumeAccessMode
		change []func(*world)
		want   string
	}{
		"one pod only":              {mode: one, want: want},
		"another mode":              {mode: many},
		"another mode, all allowed": {mode: many, change: []func(*world){all}, want: want},
		"all, policy MountOption":   {mode: many, change: []func(*world){all, policy(corev1.SELinuxChangePolicyMountOption)}, want: want},
		"all, policy Recursive":     {mode: many, change: []func(*world){all, policy(corev1.SELinuxChangePolicyRecursive)}},
		"policy Recursive":          {mode: one, change: []func(*world){policy(corev1.SELinuxChangePolicyRecursive)}},
		"no SELinux on the host":    {mode: one, change: []func(*world){func(w *world) { w.config.SELinux.FileLabel = "" }}},
		"a pod without options":     {mode: one, change: []func(*world){func(w *world) { w.pod().Spec.SecurityContext.SELinuxOptions = nil }}},
		"options without a level":   {mode: one, change: []func(*world){func(w *world) { w.pod().Spec.SecurityContext.SELinuxOptions.Level = "" }}},
		"a driver that cannot":      {mode: one, change: []func(*world){func(w *world) { w.driver(storagev1.CSIDriverSpec{SELinuxMount: ptr(false)}) }}},
		"no CSIDriver":              {mode: one, change: []func(*world){func(w *world) { w.drop("CSIDriver", "", "csi.example.com") }}},
		"the container's own":       {mode: one, change: []func(*world){func(w *world) { w.pod().Spec.Containers[0].SecurityContext = level("s0:c7") }}, want: "system_u:object_r:container_file_t:s0:c7"},
		"privileged, with its own": {mode: one, change: []func(*world){func(w *world) {
			c := level("s0:c8")
			c.Privileged = ptr(true)
			w.pod().Spec.Containers[0].SecurityContext = c
		}}, want: "system_u:object_r:container_file_t:s0:c8"},
		"a user, and a type of processes": {mode: one, change: []func(*world){func(w *world) { o := w.pod().Spec.SecurityContext.SELinuxOptions; o.User, o.Type = "u", "spc_t" }}, want: "u:object_r:container_file_t:s0:c1,c2"},
	} {
		w := labelWorld(t, tc.mode)
		for _, c := range tc.change {
			c(w)
		}
		got := w.only(t)
		if got.Problem != "" || got.Mount.SELinuxLabel != tc.want || got.Spec.SELinuxLabel != "" {
			t.Errorf("%s: label %q, problem %q; want %q", name, got.Mount.SELinuxLabel, got.Problem, tc.want)
		}
	}
}

// TestContainersOfOnePodThatDifferAreRefused: before any volume is mounted.
//
// Items: H15.
func TestContainersOfOnePodThatDifferAreRefused(t *testing.T) {
	w := labelWorld(t, corev1.ReadWriteOncePod)
	second := w.pod().Spec.Containers[0]
	second.Name, second.SecurityContext = "second", level("s0:c9")
	w.pod().Spec.Containers = append(w.pod().Spec.Containers, second)
	refused := w.only(t)
	if s := refused.SELinux; s == nil || s.Fault != state.SELinuxContainers || !s.Applied || len(s.AccessModes) != 1 {
		t.Errorf("wish %+v", s)
	}
	got := refused.Problem
	for _, part := range []string{"pod default/web: multiple SELinux labels of volume data", "s0:c1,c2 and system_u:object_r:container_file_t:s0:c9", "seLinuxChangePolicy: Recursive"} {
		if !strings.Contains(got, part) {
			t.Errorf("got %q, want %q in it", got, part)
		}
	}
	w.pod().Spec.SecurityContext.SELinuxChangePolicy = ptr(corev1.SELinuxChangePolicyRecursive)
	if got := w.only(t); got.Problem != "" || got.Mount.SELinuxLabel != "" {
		t.Errorf("Recursive: %+v", got)
	}
}

// Of the built-in kinds, only PersistentVolumes on network disks are mounted with a label. The runtime labels the
// files of an inline volume. A file server's volume and a raw device get no label.
//
// Items: Q05.
func TestWhichKindsAreLabelledWhenTheyAreMounted(t *testing.T) {
	lun := int32(3)
	fc := &corev1.FCVolumeSource{TargetWWNs: []string{"50060e80167021aa"}, Lun: &lun}
	iscsi := &corev1.ISCSIPersistentVolumeSource{TargetPortal: "192.0.2.1", IQN: "iqn.x"}
	for name, tc := range map[string]struct {
		source corev1.PersistentVolumeSource
		change func(*world)
		want   string
	}{
		"fc":      {source: corev1.PersistentVolumeSource{FC: fc}, want: hostLabel + ":c1,c2"},
		"iscsi":   {source: corev1.PersistentVolumeSource{ISCSI: iscsi}, want: hostLabel + ":c1,c2"},
		"nfs":     {source: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "192.0.2.1", Path: "/x"}}},
		"one pod": {source: corev1.PersistentVolumeSource{FC: fc}, change: func(w *world) { w.config.SELinux.AllModes = false }},
		"Recursive": {source: corev1.PersistentVolumeSource{FC: fc}, change: func(w *world) {
			w.pod().Spec.SecurityContext.SELinuxChangePolicy = ptr(corev1.SELinuxChangePolicyRecursive)
		}},
		"a device": {source: corev1.PersistentVolumeSource{FC: fc}, change: func(w *world) {
			w.volume().Spec.VolumeMode = ptr(corev1.PersistentVolumeBlock)
			c := &w.pod().Spec.Containers[0]
			c.VolumeMounts, c.VolumeDevices = nil, []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/data"}}
		}},
		"inline": {source: corev1.PersistentVolumeSource{FC: fc}, change: func(w *world) {
			w.pod().Spec.Volumes[0].VolumeSource = corev1.VolumeSource{FC: fc}
		}},
	} {
		w := labelWorld(t, corev1.ReadWriteOnce)
		w.config.SELinux.AllModes = true
		w.config.Builtins = []state.DriverName{kind.FC, kind.ISCSI, kind.NFS}
		w.volume().Spec.PersistentVolumeSource = tc.source
		if tc.change != nil {
			tc.change(w)
		}
		got := w.only(t)
		if got.Problem != "" || got.Mount.SELinuxLabel != tc.want || (got.SELinux == nil) == (tc.want != "") && name != "one pod" && name != "Recursive" {
			t.Errorf("%s: label %q, wish %+v, problem %q; want %q", name, got.Mount.SELinuxLabel, got.SELinux, got.Problem, tc.want)
		}
	}
}

func TestALabelThatIsNoneIsRefused(t *testing.T) {
	w := labelWorld(t, corev1.ReadWriteOncePod)
	w.pod().Spec.SecurityContext.SELinuxOptions.Level = `s0",suid,x="`
	got := w.only(t)
	if !strings.Contains(got.Problem, "securityContext.seLinuxOptions: found ") {
		t.Errorf("got %q", got.Problem)
	}
	want := &state.SELinuxWish{Applied: true, Fault: state.SELinuxOptions, AccessModes: []state.AccessMode{state.ReadWriteOncePod}}
	if !reflect.DeepEqual(got.SELinux, want) {
		t.Errorf("wish %+v, want %+v", got.SELinux, want)
	}
}

// If the volume's access modes leave labels to the runtime, the pod still gets the volume. The want has the label
// that it would have, so that other pods can be warned of it.
//
// Items: H11, H03, H04, H12, H14, H15.
func TestALabelThatIsNotAppliedIsTold(t *testing.T) {
	const base = "system_u:object_r:container_file_t:"
	once := []state.AccessMode{state.ReadWriteOnce}
	for name, tc := range map[string]struct {
		change func(*world)
		want   *state.SELinuxWish
	}{
		"not applied": {func(*world) {}, &state.SELinuxWish{Label: base + "s0:c1,c2"}},
		"recursive": {func(w *world) {
			w.pod().Spec.SecurityContext.SELinuxChangePolicy = ptr(corev1.SELinuxChangePolicyRecursive)
		}, &state.SELinuxWish{}},
		"applied":              {func(w *world) { w.config.SELinux.AllModes = true }, &state.SELinuxWish{Label: base + "s0:c1,c2", Applied: true}},
		"a driver that cannot": {func(w *world) { w.driver(storagev1.CSIDriverSpec{}) }, nil},
		"no SELinux":           {func(w *world) { w.config.SELinux = resolve.SELinux{} }, nil},
		"no label": {func(w *world) {
			w.pod().Spec.SecurityContext.SELinuxOptions.Level = `s0"`
		}, &state.SELinuxWish{Fault: state.SELinuxOptions, AccessModes: once}},
		"two in one pod": {func(w *world) {
			second := w.pod().Spec.Containers[0]
			second.Name, second.SecurityContext = "second", level("s0:c9")
			w.pod().Spec.Containers = append(w.pod().Spec.Containers, second)
		}, &state.SELinuxWish{Label: base + "s0:c1,c2 and " + base + "s0:c9", Fault: state.SELinuxContainers, AccessModes: once}},
	} {
		w := labelWorld(t, corev1.ReadWriteOnce)
		tc.change(w)
		got := w.only(t)
		if got.Problem != "" || !reflect.DeepEqual(got.SELinux, tc.want) || (got.Mount.SELinuxLabel != "") != (tc.want != nil && tc.want.Applied) {
			t.Errorf("%s: got %+v, label %q, problem %q; want %+v", name, got.SELinux, got.Mount.SELinuxLabel, got.Problem, tc.want)
		}
	}
}
