//go:build cluster

package cluster

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A claim waits for its first pod, and external-provisioner makes its volume in the
// zone of the node that the scheduler chose; external-attacher attaches it there, and
// the pod has it. When pod and claim have gone, the volume is detached and deleted.
//
// Faults: A169.
func TestAClaimIsProvisionedInItsZone(t *testing.T) {
	t.Parallel()
	s := newShared(t, "provision.test", map[string]string{"made-a": "east", "made-b": "west"}, "csi-provisioner", "csi-attacher")
	other, n := asNode(t, "made-a"), asNode(t, "made-b")
	s.serve(other)
	s.serve(n)
	s.claim("made", "1Gi", nil)
	createPod(t, podWith(n.name, "made", fromClaim("made")))
	must(t, os.WriteFile(filepath.Join(n.at("made", "data"), "hello"), []byte("world"), 0o600))
	claim, err := control.client.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "made", metav1.GetOptions{})
	must(t, err)
	v := s.model().Volumes[claim.Spec.VolumeName]
	if v == nil || v.Zone != "west" || v.NodeID != n.name || claim.Status.Phase != corev1.ClaimBound {
		t.Fatalf("the volume is %+v, the claim %+v", v, claim.Status)
	}
	n.gone("made")
	s.unclaim(n, "made")
}
