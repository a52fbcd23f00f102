package resolve_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// G01...G06: the driver's fsGroupPolicy decides who changes the files' group.
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
		"G03 readers":            {fsType: "ext4", modes: mode(corev1.ReadOnlyMany), want: never},
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

// A CSIDriver from before the field existed does not say who owns the files: the pod waits for one that does.
//
// Items: G11.
func TestCSIDriverWithoutAPolicyIsWaitedFor(t *testing.T) {
	for name, policy := range map[string]*storagev1.FSGroupPolicy{"none": nil, "empty": ptr(storagev1.FSGroupPolicy(""))} {
		w := read(t, "testdata/base.yaml")
		w.driver(storagev1.CSIDriverSpec{})
		object := w.objects[resolve.Key{Kind: "CSIDriver", Name: "csi.example.com"}].(*storagev1.CSIDriver)
		object.Spec.FSGroupPolicy = policy
		if got := w.only(t).Problem; !strings.Contains(got, "CSIDriver csi.example.com: spec.fsGroupPolicy: found none, want ") {
			t.Errorf("%s: problem %q", name, got)
		}
		object.Spec.FSGroupPolicy = ptr(storagev1.NoneFSGroupPolicy)
		if got := w.only(t).Problem; got != "" {
			t.Errorf("%s, once there is one: problem %q", name, got)
		}
	}
}

// The next pod's files follow the current policy: nothing of an earlier policy is kept.
//
// Items: G06.
func TestAChangedPolicyHoldsForTheNextPod(t *testing.T) {
	const none, file, byType = storagev1.NoneFSGroupPolicy, storagev1.FileFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	// On a volume without a file system type, the default policy changes no group.
	for fsType, ofDefault := range map[string]state.Ownership{"": "", "ext4": state.OwnAlways} {
		owned := map[storagev1.FSGroupPolicy]state.Ownership{none: "", file: state.OwnAlways, byType: ofDefault}
		for _, change := range [][2]storagev1.FSGroupPolicy{{none, file}, {none, byType}, {file, none}, {file, byType}, {byType, none}, {byType, file}} {
			w := read(t, "testdata/base.yaml")
			w.volume().Spec.CSI.FSType = fsType
			w.volume().Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
			w.pod().Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr(int64(2000))}
			for _, policy := range change {
				w.driver(storagev1.CSIDriverSpec{FSGroupPolicy: &policy})
				if got := w.only(t); got.Problem != "" || got.Mount.Ownership != owned[policy] {
					t.Errorf("%s to %s: at %s got %q (%s), want %q", change[0], change[1], policy, got.Mount.Ownership, got.Problem, owned[policy])
				}
			}
		}
	}
}
