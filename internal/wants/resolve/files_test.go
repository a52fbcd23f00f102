package resolve_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

func withFiles(t testing.TB) *world {
	t.Helper()
	w := read(t, "testdata/base.yaml")
	w.config.Builtins = []state.DriverName{kind.Secret, kind.DownwardAPI, kind.Projected}
	w.config.RevisionKey = []byte("key")
	return w
}

const secretCanary = "canary-93e1"

func (w *world) secret(t testing.TB, value string) {
	t.Helper()
	w.add(t, "{apiVersion: v1, kind: Secret, metadata: {name: conf}, stringData: {a: '"+value+"'}}")
}

var filesSources = map[state.DriverName]corev1.VolumeSource{
	kind.Secret: {Secret: &corev1.SecretVolumeSource{SecretName: "conf"}},
	kind.Projected: {Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "conf"}}},
	}}},
	kind.DownwardAPI: {DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
		{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
	}}},
}

func TestKindsThatShowFilesAreWanted(t *testing.T) {
	for kind, src := range filesSources {
		w := withFiles(t)
		w.secret(t, secretCanary)
		source(w, src)
		got := w.only(t)
		if got.Problem != "" || got.Spec.Driver != kind || !got.Spec.Builtin || got.Revision == "" ||
			got.Mount.Target != w.config.Layout.BuiltinTarget(kind, state.PodUID(w.pod().UID), "data") {
			t.Errorf("%s: got %+v", kind, got)
		}
	}
}

// Rule 7: the journal stores a want and the API shows it.
func TestWantHasNoSecretAndNothingThatTellsIt(t *testing.T) {
	for _, kind := range []state.DriverName{kind.Secret, kind.Projected} {
		revision := func(value, key string) string {
			w := withFiles(t)
			w.config.RevisionKey = []byte(key)
			w.secret(t, value)
			source(w, filesSources[kind])
			got := w.only(t)
			text, err := json.Marshal(got)
			if err != nil || strings.Contains(string(text), secretCanary) || strings.Contains(string(text), "Y2FuYXJ5") {
				t.Errorf("%s: got %s, %v", kind, text, err)
			}
			return got.Revision
		}
		all := []string{revision(secretCanary, "key"), revision(secretCanary, "other key"), revision("x", "key")}
		if slices.Sort(all); len(slices.Compact(all)) != 3 {
			t.Errorf("%s: %q: a revision that does not follow content and key", kind, all)
		}
		if again := revision(secretCanary, "key"); !slices.Contains(all, again) {
			t.Errorf("%s: two revisions of the same", kind)
		}
	}
}

// Items: L08.
func TestDownwardRevisionFollowsWhatIsSelected(t *testing.T) {
	revision := func(change func(*corev1.Pod)) string {
		w := withFiles(t)
		source(w, filesSources[kind.DownwardAPI])
		change(w.pod())
		return w.only(t).Revision
	}
	before := revision(func(*corev1.Pod) {})
	if revision(func(p *corev1.Pod) { p.Annotations = map[string]string{"a": "b"} }) != before {
		t.Error("an annotation, which is not selected, changes the revision")
	}
	if revision(func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }) == before {
		t.Error("a label, which is selected, does not change the revision")
	}
}

func TestFilesThatCannotBeAreAProblem(t *testing.T) {
	for name, tc := range map[string]struct {
		src  corev1.VolumeSource
		want string
	}{
		"secret not found": {corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "nope"}}, "spec.volumes[0].secret: secret default/nope: not found"},
		"token": {
			corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "t"}}}}},
			"spec.volumes[0].projected: sources[0].serviceAccountToken: no issuer of service account tokens here",
		},
		"field": {
			corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{{Path: "x", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}}}},
			`spec.volumes[0].downwardAPI: items[0].fieldRef: fieldPath: found "status.podIP"`,
		},
	} {
		w := withFiles(t)
		source(w, tc.src)
		if got := w.only(t); !strings.HasPrefix(got.Problem, "pod default/web: "+tc.want) {
			t.Errorf("%s: got %q, want %q", name, got.Problem, tc.want)
		}
		if got := w.only(t); (got.Cause.Code == state.CauseCode(state.NoIssuer)) != (name == "token") {
			t.Errorf("%s: cause %v", name, got.Cause)
		}
	}
}

// C5, C6, M14: none of these kinds starts a program, and the reason says what to use instead.
// Items: M14.
// Attacks: C5, C6.
func TestAttackKindsThatAreRefusedSayWhy(t *testing.T) {
	for kind, tc := range map[string]struct {
		src  corev1.VolumeSource
		want string
	}{
		"gitRepo":              {corev1.VolumeSource{GitRepo: &corev1.GitRepoVolumeSource{Repository: "file:///var/lib/kubelet"}}, "CVE-2024-10220"},
		"flexVolume":           {corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{Driver: "a/b"}}, "1.23"},
		"flocker":              {corev1.VolumeSource{Flocker: &corev1.FlockerVolumeSource{}}, "1.25"},
		"quobyte":              {corev1.VolumeSource{Quobyte: &corev1.QuobyteVolumeSource{}}, "csi.quobyte.com"},
		"scaleIO":              {corev1.VolumeSource{ScaleIO: &corev1.ScaleIOVolumeSource{}}, "csi-vxflexos.dellemc.com"},
		"storageos":            {corev1.VolumeSource{StorageOS: &corev1.StorageOSVolumeSource{}}, "1.25"},
		"photonPersistentDisk": {corev1.VolumeSource{PhotonPersistentDisk: &corev1.PhotonPersistentDiskVolumeSource{}}, "1.16"},
	} {
		w := withFiles(t)
		source(w, tc.src)
		if got := w.only(t).Problem; !strings.HasPrefix(got, "pod default/web: spec.volumes[0]: a volume of kind "+kind+" is refused: ") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q in it", kind, got, tc.want)
		}
	}
	w := withFiles(t)
	w.volume().Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{ScaleIO: &corev1.ScaleIOPersistentVolumeSource{}}
	if got := w.only(t).Problem; !strings.HasPrefix(got, "volume pv-1: spec.scaleIO: a volume of kind scaleIO is refused: Kubernetes 1.22") {
		t.Errorf("got %q", got)
	}
}

// M07 and 7.5: the pod gets the path as it is, and no owner is changed.
func TestHostPathIsHandedOutAndNotOwned(t *testing.T) {
	w := read(t, "testdata/base.yaml")
	w.config.Builtins = []state.DriverName{kind.HostPath}
	w.pod().Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr(int64(2000))}
	source(w, corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv//data/", Type: ptr(corev1.HostPathDirectory)}})
	got := w.only(t)
	if got.Problem != "" || got.Mount.HostPath != "/srv/data" || got.Mount.FSGroup != nil || string(got.Spec.Config) != `{"path":"/srv//data/","type":"Directory"}` {
		t.Errorf("got %+v", got)
	}
	for _, path := range []string{"", "srv", "/srv/../etc", "/..", "/a\x00b", "/" + strings.Repeat("a", 4096)} {
		w.pod().Spec.Volumes[0].HostPath.Path = path
		if got := w.only(t); !strings.HasPrefix(got.Problem, "pod default/web: spec.volumes[0].hostPath.path: found ") {
			t.Errorf("%.20q: got %+v", path, got)
		}
	}
}

// BenchmarkPod resolves a pod with four volumes that show files.
func BenchmarkPod(b *testing.B) {
	w := withFiles(b)
	w.secret(b, "value")
	pod := w.pod()
	pod.Spec.Volumes, pod.Spec.Containers[0].VolumeMounts = nil, nil
	for _, name := range []string{"a", "b", "c", "d"} {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: filesSources[kind.Secret]})
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, v := range w.resolve().Volumes {
			if v.Problem != "" {
				b.Fatal(v.Problem)
			}
		}
	}
}
