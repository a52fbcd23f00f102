package resolve_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// G01...G06: who gives the files to the group, by the driver's fsGroupPolicy.
// Items: A32, G01, G02, G03, G04, G05.
func TestOwnershipFollowsFSGroupPolicy(t *testing.T) {
	const always, never = state.OwnAlways, state.Ownership("")
	mode := func(m ...corev1.PersistentVolumeAccessMode) []corev1.PersistentVolumeAccessMode { return m }
	for name, test := range map[string]struct {
		policy   *storagev1.FSGroupPolicy
		noObject bool
		fsType   string
		modes    []corev1.PersistentVolumeAccessMode
		readOnly bool
		noGroup  bool
		want     state.Ownership
	}{
		"G01 no object":          {noObject: true, fsType: "ext4", modes: mode(corev1.ReadWriteOnce), want: always},
		"G01 default":            {fsType: "ext4", modes: mode(corev1.ReadWriteOnce), want: always},
		"G01 named":              {policy: ptr(storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy), fsType: "ext4", modes: mode(corev1.ReadWriteOnce, corev1.ReadWriteMany), want: always},
		"G02 no fsType":          {modes: mode(corev1.ReadWriteOnce), want: never},
		"G03 many":               {fsType: "ext4", modes: mode(corev1.ReadWriteMany), want: never},
		"G03 one pod":            {fsType: "ext4", modes: mode(corev1.ReadWriteOncePod), want: always},
		"G04 File":               {policy: ptr(storagev1.FileFSGroupPolicy), modes: mode(corev1.ReadWriteMany), want: always},
		"G04 None":               {policy: ptr(storagev1.NoneFSGroupPolicy), fsType: "ext4", modes: mode(corev1.ReadWriteOnce), want: never},
		"G05 read-only":          {policy: ptr(storagev1.FileFSGroupPolicy), modes: mode(corev1.ReadWriteOnce), readOnly: true, want: never},
		"without an fsGroup":     {policy: ptr(storagev1.FileFSGroupPolicy), modes: mode(corev1.ReadWriteOnce), noGroup: true, want: never},
		"a policy of tomorrow's": {policy: ptr(storagev1.FSGroupPolicy("Sometimes")), fsType: "ext4", modes: mode(corev1.ReadWriteOnce), want: never},
	} {
		for change, want := range map[corev1.PodFSGroupChangePolicy]state.Ownership{
			corev1.FSGroupChangeAlways: test.want, corev1.FSGroupChangeOnRootMismatch: state.OwnOnRootMismatch,
		} {
			if test.want == never {
				want = never
			}
			w := read(t, "testdata/base.yaml")
			w.pod().Spec.SecurityContext = &corev1.PodSecurityContext{FSGroupChangePolicy: &change}
			if !test.noGroup {
				w.pod().Spec.SecurityContext.FSGroup = ptr(int64(2000))
			}
			if !test.noObject {
				w.driver(storagev1.CSIDriverSpec{FSGroupPolicy: test.policy})
			}
			w.source().FSType = test.fsType
			w.volume().Spec.AccessModes, w.claim().Spec.AccessModes = test.modes, test.modes
			w.pod().Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = test.readOnly
			if got := w.only(t); got.Problem != "" || got.Mount.Ownership != want {
				t.Errorf("%s, %s: got %q (%s), want %q", name, change, got.Mount.Ownership, got.Problem, want)
			}
		}
	}
}
