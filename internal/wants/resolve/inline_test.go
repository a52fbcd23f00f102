package resolve_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// TestWhoMayHaveInlineVolumes: without rules all pods, otherwise those that a rule names. Claims need no rule.
//
// Items: F22.
// Attacks: C16.
func TestWhoMayHaveInlineVolumes(t *testing.T) {
	const driver = "csi.example.com"
	for name, tc := range map[string]struct {
		rules []resolve.InlineRule
		may   bool
	}{
		"no rules":              {may: true},
		"nobody":                {rules: []resolve.InlineRule{}},
		"its namespace":         {rules: []resolve.InlineRule{{Namespace: "other", Driver: driver}, {Namespace: "default", Driver: driver}}, may: true},
		"another namespace":     {rules: []resolve.InlineRule{{Namespace: "other", Driver: driver}}},
		"another driver":        {rules: []resolve.InlineRule{{Namespace: "default", Driver: "d"}}},
		"every namespace":       {rules: []resolve.InlineRule{{Namespace: resolve.Any, Driver: driver}}, may: true},
		"every driver, for its": {rules: []resolve.InlineRule{{Namespace: "default", Driver: resolve.Any}}, may: true},
	} {
		w := read(t, "testdata/base.yaml")
		w.config.InlineAllow = tc.rules
		w.driver(storagev1.CSIDriverSpec{VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral, storagev1.VolumeLifecyclePersistent}})
		if got := w.only(t).Problem; got != "" {
			t.Errorf("%s: a claim: %s", name, got)
		}
		w.pod().Spec.Volumes[0].VolumeSource = corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: driver}}
		got := w.only(t).Problem
		if want := "found csi.example.com, which namespace default may not use inline on this node; want a claim, or --inline-allow=default/csi.example.com"; tc.may != (got == "") || !tc.may && !strings.Contains(got, want) {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

// A network volume is allowed by its kind's name, as a driver's is, and a translated one by its driver's name. A
// volume that stays on the node needs no rule.
//
// Attacks: C16.
func TestWhoMayHaveInlineVolumesOfANetwork(t *testing.T) {
	lun := int32(0)
	for of, src := range map[state.DriverName]corev1.VolumeSource{
		kind.NFS:          {NFS: &corev1.NFSVolumeSource{Server: "filer", Path: "/"}},
		kind.ISCSI:        {ISCSI: &corev1.ISCSIVolumeSource{TargetPortal: "192.0.2.1", IQN: "iqn.2026-01.example:x"}},
		kind.FC:           {FC: &corev1.FCVolumeSource{TargetWWNs: []string{"50060e80167021aa"}, Lun: &lun}},
		kind.CephFS:       {CephFS: &corev1.CephFSVolumeSource{Monitors: []string{"mon"}}},
		kind.GlusterFS:    {Glusterfs: &corev1.GlusterfsVolumeSource{EndpointsName: "servers", Path: "data"}},
		"ebs.csi.aws.com": {AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}},
		kind.EmptyDir:     {EmptyDir: &corev1.EmptyDirVolumeSource{}},
	} {
		for allowed, rules := range map[bool][]resolve.InlineRule{false: {{Namespace: "other", Driver: of}}, true: {{Namespace: "default", Driver: of}}} {
			w := read(t, "testdata/base.yaml")
			w.config.InlineAllow, w.config.Builtins = rules, []state.DriverName{of}
			w.pod().Spec.Volumes[0].VolumeSource = src
			got := w.only(t).Problem
			if refused := strings.Contains(got, "may not use inline on this node; want a claim, or --inline-allow=default/"+string(of)); refused == (allowed || of == kind.EmptyDir) {
				t.Errorf("%s, allowed %t: %q", of, allowed, got)
			}
		}
	}
}

// The secret of an inline volume is in its pod's namespace, whichever that is.
//
// Items: F12.
func TestTheSecretOfAnInlineVolumeIsOfItsPodsNamespace(t *testing.T) {
	w := read(t, "testdata/base.yaml")
	w.pod().Namespace = "shop"
	w.pod().Spec.Volumes[0].VolumeSource = corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
		Driver: "csi.example.com", NodePublishSecretRef: &corev1.LocalObjectReference{Name: "token"},
	}}
	w.driver(storagev1.CSIDriverSpec{VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}})
	if got := w.only(t); got.Problem != "" || got.Spec.PublishRef != (state.SecretRef{Namespace: "shop", Name: "token"}) {
		t.Errorf("%+v", got)
	}
}

// An inline volume that has the name of a claim's PersistentVolume would be mounted at that volume's
// path: one of the two is refused, and neither gets the other's data. HostPaths are not mounted.
func TestTwoVolumesOfAPodAtOnePathAreRefused(t *testing.T) {
	csi := corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "csi.example.com"}}
	nfs := corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "filer", Path: "/x"}}
	path := corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}}
	for what, tc := range map[string]struct {
		inline corev1.VolumeSource
		pv     *corev1.PersistentVolumeSource // nil: CSI
		name   string
		refuse bool
	}{
		"CSI":               {inline: csi, name: "pv-1", refuse: true},
		"CSI, another name": {inline: csi, name: "pv-2"},
		"NFS":               {inline: nfs, pv: &corev1.PersistentVolumeSource{NFS: nfs.NFS}, name: "pv-1", refuse: true},
		"hostPath":          {inline: path, pv: &corev1.PersistentVolumeSource{HostPath: path.HostPath}, name: "pv-1"},
	} {
		w := read(t, "testdata/base.yaml")
		w.config.Builtins = append(w.config.Builtins, kind.NFS, kind.HostPath)
		w.driver(storagev1.CSIDriverSpec{VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral, storagev1.VolumeLifecyclePersistent}})
		if tc.pv != nil {
			w.volume().Spec.PersistentVolumeSource = *tc.pv
		}
		spec := &w.pod().Spec
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: tc.name, VolumeSource: tc.inline})
		spec.Containers[0].VolumeMounts = append(spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: tc.name, MountPath: "/inline"})
		got := w.resolve().Volumes
		if len(got) != 2 || got[0].Problem != "" || (got[1].Problem != "") != tc.refuse || tc.refuse && !strings.Contains(got[1].Problem, tc.name) {
			t.Errorf("%s: %+v", what, got)
		}
	}
}
