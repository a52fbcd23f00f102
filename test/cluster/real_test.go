//go:build cluster

package cluster

import (
	"os"
	"path/filepath"
	"testing"
)

// A claim waits for its first pod. external-provisioner makes its volume in the zone of the
// node that the scheduler chose, external-attacher attaches it there, and the pod gets it.
// When pod and claim are gone, the volume is detached and deleted.
//
// Faults: A169.
// Scenarios: U-164.
func TestAClaimIsProvisionedInItsZone(t *testing.T) {
	t.Parallel()
	s := newShared(t, "provision.test", map[string]string{"made-a": "east", "made-b": "west"}, "csi-provisioner", "csi-attacher")
	other, n := asNode(t, "made-a"), asNode(t, "made-b")
	s.serve(other)
	s.serve(n)
	s.claim("made", "1Gi", nil)
	createPod(t, podWith(n.name, "made", fromClaim("made")))
	must(t, os.WriteFile(filepath.Join(n.at("made", "data"), "hello"), []byte("world"), 0o600))
	if v := s.volume("made"); v.Zone != "west" || v.NodeID != n.name || v.SizeBytes != 1<<30 {
		t.Errorf("the volume is %+v", v)
	}
	n.gone("made")
	s.unclaim(n, "made")
}
