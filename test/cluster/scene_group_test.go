//go:build cluster

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// firstGroup is the fsGroup of a volume's first pod.
const firstGroup = 4711

// upAs makes a pod with the claim and the fsGroup, and returns the path of the volume.
func (s *scene) upAs(pod, claim string, group int64, policy *corev1.PodFSGroupChangePolicy) string {
	s.t.Helper()
	p := podWith(s.n.name, pod, fromClaim(claim))
	p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroupChangePolicy: policy}
	if group != 0 {
		p.Spec.SecurityContext.FSGroup = &group
	}
	createPod(s.t, p)
	return s.n.at(pod, "data")
}

// group returns the group of the file.
func group(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Stat(path, &st))
	return int64(st.Gid)
}

// typed gives a volume a file system type. Without one, the default policy changes the
// group of no file.
func typed(pv *corev1.PersistentVolume) { pv.Spec.CSI.FSType = "ext4" }

// The fsGroupPolicy of the CSIDriver object decides whether files are given to the pod's
// group, also after the policy has changed.
//
// Items: G06.
func TestScenariosOfGroupPolicies(t *testing.T) {
	t.Parallel()
	n := asNode(t, "scene-group")
	const file, none, auto = storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	for name, tc := range map[string]struct{ policy, then storagev1.FSGroupPolicy }{
		// Scenarios: U-37.
		"default": {policy: auto},
		// Scenarios: U-38.
		"file": {policy: file},
		// Scenarios: U-39.
		"none": {policy: none},
		// Scenarios: U-40.
		"none-file": {none, file},
		// Scenarios: U-41.
		"none-default": {none, auto},
		// Scenarios: U-42.
		"file-none": {file, none},
		// Scenarios: U-43.
		"file-default": {file, auto},
		// Scenarios: U-44.
		"default-none": {auto, none},
		// Scenarios: U-45.
		"default-file": {auto, file},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claim := "group-" + name
			s := begin(t, n, unattached(claim+".test", func(o *storagev1.CSIDriverSpec) { o.FSGroupPolicy = &tc.policy }))
			s.static(claim, typed)
			must(t, os.WriteFile(filepath.Join(s.upAs(claim, claim, 0, nil), "f"), nil, 0o644))
			s.down(claim)
			given := func(pod string, gid int64) bool {
				t.Helper()
				at := s.upAs(pod, claim, gid, nil)
				root, f := group(t, at), group(t, filepath.Join(at, "f"))
				if root != f {
					t.Errorf("the root is group %d's, and its file group %d's", root, f)
				}
				s.down(pod)
				return f == gid
			}
			if got := given(claim+"-first", firstGroup); got != (tc.policy != none) {
				t.Fatalf("policy %s: given to the group: %v", tc.policy, got)
			}
			if tc.then == "" {
				return
			}
			s.says(func(o *storagev1.CSIDriverSpec) { o.FSGroupPolicy = &tc.then })
			for i := range 50 { // until the node has seen the change
				if given(fmt.Sprintf("%s-%d", claim, i), firstGroup+1+int64(i)) == (tc.then != none) {
					return
				}
			}
			t.Errorf("policy %s never showed", tc.then)
		})
	}
}

// A driver that sets the group itself gets it with Stage and Publish, and csi-volmgr leaves
// the files alone; if the pod has no group, the driver gets none. A driver that cannot do
// so gets no group, and csi-volmgr gives the files to the group.
//
// Items: F18.
func TestScenariosOfGroupsOfTheDriver(t *testing.T) {
	t.Parallel()
	n := asNode(t, "scene-mount-group")
	for name, tc := range map[string]struct {
		can  bool
		gid  int64
		want string // volume_mount_group of the requests
		file int64
	}{
		// Scenarios: U-46.
		"told": {can: true, gid: firstGroup, want: fmt.Sprint(firstGroup)},
		// Scenarios: U-47.
		"not-able": {gid: firstGroup, file: firstGroup},
		"no-group": {can: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claim, policy := "mount-group-"+name, storagev1.FileFSGroupPolicy
			c := unattached(claim+".test", func(o *storagev1.CSIDriverSpec) { o.FSGroupPolicy = &policy })
			if tc.can {
				c.script.With = []string{"VOLUME_MOUNT_GROUP"}
			}
			s := begin(t, n, c)
			s.static(claim, typed)
			at := s.upAs(claim, claim, tc.gid, nil)
			stage := asked[csi.NodeStageVolumeRequest](s.shared, "NodeStageVolume")[0].GetVolumeCapability().GetMount().GetVolumeMountGroup()
			publish := s.publication().GetVolumeCapability().GetMount().GetVolumeMountGroup()
			if stage != tc.want || publish != tc.want || group(t, at) != tc.file {
				t.Errorf("staged for group %q, published for %q, the files are group %d's", stage, publish, group(t, at))
			}
			s.down(claim)
		})
	}
}

// fsGroupChangePolicy: the first pod's files are given to the second pod's group, always or
// only if the root directory has another group.
func TestScenariosOfGroupChangePolicies(t *testing.T) {
	t.Parallel()
	n := asNode(t, "scene-change")
	always, mismatch := corev1.FSGroupChangeAlways, corev1.FSGroupChangeOnRootMismatch
	const other, deeper, second = 4712, 4713, 4714
	for name, tc := range map[string]struct {
		policy   corev1.PodFSGroupChangePolicy
		changed  bool // the first pod gives its files to other groups
		alone    bool // the volume is ReadWriteOncePod
		gid      int64
		top, sub int64 // the groups of the files afterwards
	}{
		// Scenarios: U-115.
		"always": {policy: always, gid: second, top: second, sub: second},
		// Scenarios: U-116.
		"always-alone": {policy: always, alone: true, gid: second, top: second, sub: second},
		// Scenarios: U-117.
		"always-changed": {policy: always, changed: true, gid: firstGroup, top: firstGroup, sub: firstGroup},
		// Scenarios: U-118.
		"always-changed-other": {policy: always, changed: true, gid: second, top: second, sub: second},
		// Scenarios: U-119.
		"mismatch": {policy: mismatch, gid: second, top: second, sub: second},
		// Scenarios: U-120.
		"mismatch-changed": {policy: mismatch, changed: true, gid: firstGroup, top: other, sub: deeper},
		// Scenarios: U-121.
		"mismatch-changed-other": {policy: mismatch, changed: true, gid: second, top: second, sub: second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claim := "change-" + name
			s := begin(t, n, unattached(claim+".test", nil))
			s.static(claim, func(pv *corev1.PersistentVolume) {
				typed(pv)
				if tc.alone {
					pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
				}
			})
			at := s.upAs(claim, claim, firstGroup, &tc.policy)
			top, sub := filepath.Join(at, "f"), filepath.Join(at, "d", "f")
			must(t, os.Mkdir(filepath.Dir(sub), 0o775))
			for path, gid := range map[string]int{top: other, sub: deeper} {
				must(t, os.WriteFile(path, nil, 0o664))
				if !tc.changed {
					gid = firstGroup
				}
				must(t, os.Chown(path, -1, gid))
			}
			s.down(claim)
			at = s.upAs(claim+"-2", claim, tc.gid, &tc.policy)
			if a, b := group(t, filepath.Join(at, "f")), group(t, filepath.Join(at, "d", "f")); a != tc.top || b != tc.sub {
				t.Errorf("the files are group %d's and %d's, want %d and %d", a, b, tc.top, tc.sub)
			}
			s.down(claim + "-2")
		})
	}
}
