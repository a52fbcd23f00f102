//go:build cluster

package cluster

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
)

// wish makes a claim for a volume of 1Gi of the storage; change may change the claim.
func (s *shared) wish(name string, change func(*corev1.PersistentVolumeClaim)) {
	s.t.Helper()
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &s.name, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}},
		},
	}
	if change != nil {
		change(c)
	}
	_, err := control.client.CoreV1().PersistentVolumeClaims("default").Create(s.t.Context(), c, metav1.CreateOptions{})
	must(s.t, err)
}

// growing makes storage whose volumes external-resizer expands, and a pod with a claim.
func growing(t *testing.T, n *node, claim string, change func(*storageConfig)) *scene {
	t.Helper()
	c := unattached(claim+".test", nil)
	c.sidecars = []string{"csi-provisioner", "csi-resizer"}
	if change != nil {
		change(&c)
	}
	s := begin(t, n, c)
	s.wish(claim, nil)
	s.up(claim, fromClaim(claim))
	return s
}

// allocated waits until the claim's status has size as the allocated size.
func (s *shared) allocated(n *node, claim, size string) {
	s.t.Helper()
	want := resource.MustParse(size)
	s.status(n, claim, "is being made "+size, func(now corev1.PersistentVolumeClaimStatus) bool {
		got := now.AllocatedResources["storage"]
		return got.Cmp(want) == 0
	})
}

// Volumes are expanded under their pods, by the controller, by the node, or by both, and
// with a secret if the class names one. The claim's status has the size.
func TestScenariosOfExpansion(t *testing.T) {
	t.Parallel()
	_, identity := role(t) // a node's own identity may not watch claims, and reads them every 90 seconds
	n := newNode(t, "scene-grow", identity)
	_, err := control.client.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "grow"}, StringData: map[string]string{"key": "planted"}}, metav1.CreateOptions{})
	must(t, err)
	for name, tc := range map[string]struct {
		change func(*storageConfig)
		nodes  int // calls of NodeExpandVolume
	}{
		// Scenarios: U-50.
		"controller-only": {change: func(c *storageConfig) { c.script.Without = []string{"NODE_EXPAND_VOLUME"} }},
		// Scenarios: U-52, U-53, U-57, U-58.
		"unattached": {nodes: 1},
		// Scenarios: U-55.
		"secret": {nodes: 1, change: func(c *storageConfig) {
			c.class = func(o *storagev1.StorageClass) {
				o.Parameters = map[string]string{"csi.storage.k8s.io/node-expand-secret-name": "grow", "csi.storage.k8s.io/node-expand-secret-namespace": "default"}
			}
			c.script.Secrets = map[string]map[string]string{"NodeExpandVolume": {"key": "planted"}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claim := "grow-" + name
			s := growing(t, n, claim, tc.change)
			s.resize(claim, "2Gi")
			s.hasSize(s.n, claim, "2Gi")
			s.allocated(s.n, claim, "2Gi")
			all := asked[csi.NodeExpandVolumeRequest](s.shared, "NodeExpandVolume")
			if len(all) != tc.nodes {
				t.Errorf("%d calls of NodeExpandVolume, want %d", len(all), tc.nodes)
			}
			for _, r := range all {
				if r.GetStagingTargetPath() == "" || r.GetVolumePath() == "" || r.GetCapacityRange().GetRequiredBytes() != 2<<30 {
					t.Errorf("the node is asked for %v", r)
				}
			}
			s.down(claim)
			s.unclaim(s.n, claim)
		})
	}
	t.Run("of a generic ephemeral volume", func(t *testing.T) {
		t.Parallel()
		// Scenarios: U-112.
		c := unattached("grow-own.test", nil)
		c.sidecars = []string{"csi-provisioner", "csi-resizer"}
		s := begin(t, n, c)
		s.up("grow-own", s.template("data"))
		s.resize("grow-own-data", "2Gi")
		s.hasSize(s.n, "grow-own-data", "2Gi")
		s.end("grow-own")
		s.n.eventually("the volume goes with its pod", func() bool { return len(s.model().Volumes) == 0 })
	})
}

// An expansion fails for good or for now, in the controller or on the node. The claim then
// asks for a smaller size, which succeeds unless the storage has the larger one already.
//
// Items: I12.
func TestScenariosOfExpansionThatFails(t *testing.T) {
	t.Parallel()
	_, identity := role(t)
	n := newNode(t, "scene-recover", identity)
	const controller, node = "ControllerExpandVolume", "NodeExpandVolume"
	for name, tc := range map[string]struct {
		call     string
		code     codes.Code
		nodeOnly bool
		status   corev1.ClaimResourceStatus
		kept     bool // the smaller size cannot be had: the storage has the larger one
	}{
		// Scenarios: U-60.
		"controller-final": {call: controller, code: codes.Internal, status: corev1.PersistentVolumeClaimControllerResizeInProgress},
		// Scenarios: U-61.
		"node-infeasible": {call: node, code: codes.OutOfRange, status: corev1.PersistentVolumeClaimNodeResizeInfeasible, kept: true},
		// Scenarios: U-62.
		"node-only-infeasible": {call: node, code: codes.OutOfRange, nodeOnly: true, status: corev1.PersistentVolumeClaimNodeResizeInfeasible},
		// Scenarios: U-63.
		"node-only-final": {call: node, code: codes.Internal, nodeOnly: true, status: corev1.PersistentVolumeClaimNodeResizeInProgress},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claim := "recover-" + name
			s := growing(t, n, claim, func(c *storageConfig) {
				if tc.nodeOnly {
					c.script.Without = []string{"CONTROLLER_EXPAND_VOLUME"}
				}
				c.script.Faults = []csistrict.Fault{{ID: "told", Call: tc.call, Code: uint32(tc.code), Effect: csistrict.EffectNone, Above: 2 << 30}}
			})
			s.resize(claim, "3Gi")
			s.status(s.n, claim, "says how the expansion stands", func(now corev1.PersistentVolumeClaimStatus) bool {
				return now.AllocatedResourceStatuses["storage"] == tc.status && s.ended(tc.call) > 0
			})
			s.allocated(s.n, claim, "3Gi")
			calls := s.ended(tc.call)
			s.resize(claim, "2Gi")
			if tc.kept {
				s.status(s.n, claim, "fails again", func(now corev1.PersistentVolumeClaimStatus) bool {
					return now.AllocatedResourceStatuses["storage"] == tc.status && s.ended(tc.call) > calls
				})
				s.allocated(s.n, claim, "3Gi")
			} else {
				s.hasSize(s.n, claim, "2Gi")
				s.allocated(s.n, claim, "2Gi")
			}
			s.down(claim)
			s.unclaim(s.n, claim)
		})
	}
}
