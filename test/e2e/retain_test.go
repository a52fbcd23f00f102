package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// The class says reclaimPolicy Retain: delete pvc keeps the volume and says where it is.
// The same claim applied again gets the data, and --data deletes it.
//
// Faults: A151.
func TestAVolumeOfAClassThatRetainsStays(t *testing.T) {
	t.Parallel()
	n := newNode(t, kinds()[0])
	class := strings.Replace(n.driver.class(), "reclaimPolicy: Delete", "reclaimPolicy: Retain", 1)
	n.Apply(class, claim("data", "64Mi", fileSystem, rwo), harness.Pod("web", harness.FromClaim("data", "data")))
	n.Mounted("web")
	write(t, filepath.Join(n.HostPath("web", "data"), "f"), "of data")
	n.DeletePods("web")
	n.NoVolumes()
	said := n.Do("", "delete", "pvc", "data")
	for _, want := range []string{"pvc/data deleted: its volume pvc-", "is kept with its data", "delete pvc data -n default --data"} {
		if !strings.Contains(said, want) {
			t.Errorf("delete pvc says %q, want %q in it", said, want)
		}
	}
	if got := n.driver.proxy.count("DeleteVolume"); got != 0 {
		t.Fatalf("%d calls of DeleteVolume", got)
	}
	_, rest, _ := strings.Cut(said, "its volume ")
	volume, _, _ := strings.Cut(rest, " ")
	n.wantPV(volume, "Released", "default/data")
	if r := n.CLI("", "delete", "pvc", "data"); r.Code == 0 || !strings.Contains(r.Stderr, "is deleted already") {
		t.Errorf("once more: exit code %d, %s", r.Code, r.Stderr)
	}
	n.Apply(claim("data", "64Mi", fileSystem, rwo), harness.Pod("again", harness.FromClaim("data", "data")))
	n.Mounted("again")
	wantFile(t, filepath.Join(n.HostPath("again", "data"), "f"), "of data")
	n.wantPV(volume, "Bound", "default/data")
	n.DeletePods("again")
	n.NoVolumes()
	n.Do("", "delete", "pvc", "data", "--data")
	if got := n.driver.proxy.count("DeleteVolume"); got != 1 {
		t.Errorf("%d calls of DeleteVolume, want 1", got)
	}
	n.nothingLeft()
}
