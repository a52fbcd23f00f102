//go:build cluster

package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// resize changes the size that the claim asks for.
func (s *shared) resize(claim, size string) {
	s.t.Helper()
	claims := control.client.CoreV1().PersistentVolumeClaims("default")
	for {
		c, err := claims.Get(s.t.Context(), claim, metav1.GetOptions{})
		must(s.t, err)
		c.Spec.Resources.Requests["storage"] = resource.MustParse(size)
		if _, err = claims.Update(s.t.Context(), c, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			must(s.t, err)
			return
		}
	}
}

// status waits until ok returns true for the claim's status.
func (s *shared) status(n *node, claim, what string, ok func(corev1.PersistentVolumeClaimStatus) bool) {
	s.t.Helper()
	var last any
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Logf("claim %s was last: %+v", claim, last)
		}
	})
	n.eventually("claim "+claim+" "+what, func() bool {
		c, err := control.client.CoreV1().PersistentVolumeClaims("default").Get(s.t.Context(), claim, metav1.GetOptions{})
		if err == nil {
			last = c.Status
		}
		return err == nil && ok(c.Status)
	})
}

// touch makes a change to the claim that means nothing. external-resizer caches the answer
// to its own write, even over a newer claim from its watch; then each of its writes
// conflicts until its watch delivers the claim again. Seen once: a claim that was made
// smaller while the resizer noted a failure stayed so for four minutes.
func (s *shared) touch(claim string) {
	s.t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"touched":%q}}}`, time.Now().Format(time.RFC3339Nano))
	_, err := control.client.CoreV1().PersistentVolumeClaims("default").Patch(s.t.Context(), claim, types.MergePatchType, patch,
		metav1.PatchOptions{})
	must(s.t, err)
}

// unused is the condition in which Kubernetes 1.37's controller manager notes since when no
// pod uses a claim. It is False while a pod does.
const unused = "Unused"

// hasSize waits until the claim has the size and no expansion is pending.
func (s *shared) hasSize(n *node, claim, size string) {
	s.t.Helper()
	want := resource.MustParse(size)
	polls, touch := 0, 100
	s.status(n, claim, "has "+size+" and nothing left to do", func(now corev1.PersistentVolumeClaimStatus) bool {
		if polls++; polls == touch {
			touch *= 3
			s.touch(claim)
		}
		left := slices.ContainsFunc(now.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
			return c.Type != unused
		})
		return now.Capacity.Storage().Equal(want) && len(now.AllocatedResourceStatuses) == 0 && !left
	})
}

// external-resizer expands the volume and the node expands its file system: while a pod has
// the volume, and when the next pod comes after an expansion without one. If the storage
// cannot provide the size, the claim says so, and a smaller size succeeds later.
//
// Items: I02, N-95.
// Faults: A170.
// Scenarios: U-51, U-52, U-56, U-59, U-167, U-168, U-169.
func TestAVolumeIsExpanded(t *testing.T) {
	t.Parallel()
	_, identity := role(t)
	s := newShared(t, "grow.test", map[string]string{"grow": "east"}, "csi-provisioner", "csi-attacher", "csi-resizer")
	n := newNode(t, "grow", identity)
	s.serve(n)
	s.claim("growing", "1Gi", nil)
	createPod(t, podWith(n.name, "grows-1", fromClaim("growing")))
	n.mounted("grows-1")
	s.resize("growing", "2Gi")
	s.hasSize(n, "growing", "2Gi")
	s.resize("growing", "3Ti") // more than the driver can provide
	s.status(n, "growing", "says that the size cannot be had", func(now corev1.PersistentVolumeClaimStatus) bool {
		return now.AllocatedResourceStatuses["storage"] == corev1.PersistentVolumeClaimControllerResizeInfeasible
	})
	s.resize("growing", "3Gi")
	s.hasSize(n, "growing", "3Gi")
	n.gone("grows-1")
	s.resize("growing", "4Gi")
	s.status(n, "growing", "waits for a node", func(now corev1.PersistentVolumeClaimStatus) bool {
		return now.AllocatedResourceStatuses["storage"] == corev1.PersistentVolumeClaimNodeResizePending
	})
	createPod(t, podWith(n.name, "grows-2", fromClaim("growing")))
	n.mounted("grows-2")
	s.hasSize(n, "growing", "4Gi")
	if v := s.volume("growing"); v.NodeSizeBytes != 4<<30 {
		t.Errorf("the node's driver was asked for %d bytes last", v.NodeSizeBytes)
	}
	n.gone("grows-2")
	s.unclaim(n, "growing")
	noRefusals(t, "system:serviceaccount:csi-volmgr:csi-volmgr")
}
