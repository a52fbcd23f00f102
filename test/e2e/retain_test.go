package e2e

import (
	"path/filepath"
	"strings"
	"testing"
)

// A class that says reclaimPolicy Retain: the deletion of a claim keeps the volume and
// says where it is; the claim applied again finds its data; --data deletes it.
//
// Faults: A151.
func TestAVolumeOfAClassThatRetainsStays(t *testing.T) {
	t.Parallel()
	n := newNode(t, kinds()[0])
	class := strings.Replace(n.driver.class(), "reclaimPolicy: Delete", "reclaimPolicy: Retain", 1)
	n.apply(class, claim("data", "64Mi", fileSystem, rwo), pod("web", fromClaim("data", "data")))
	n.mounted("web")
	write(t, filepath.Join(n.hostPath("web", "data"), "f"), "of data")
	n.deletePod("web")
	n.noVolumes()
	said := n.do("", "delete", "pvc", "data")
	for _, want := range []string{"pvc/data deleted: its volume pvc-", "is kept with its data", "delete pvc data -n default --data"} {
		if !strings.Contains(said, want) {
			t.Errorf("delete pvc says %q, want %q in it", said, want)
		}
	}
	if got := n.driver.proxy.count("DeleteVolume"); got != 0 {
		t.Fatalf("%d calls of DeleteVolume", got)
	}
	if r := n.cli("", "delete", "pvc", "data"); r.code == 0 || !strings.Contains(r.stderr, "is deleted already") {
		t.Errorf("once more: exit code %d, %s", r.code, r.stderr)
	}
	n.apply(claim("data", "64Mi", fileSystem, rwo), pod("again", fromClaim("data", "data")))
	n.mounted("again")
	wantFile(t, filepath.Join(n.hostPath("again", "data"), "f"), "of data")
	n.deletePod("again")
	n.noVolumes()
	n.do("", "delete", "pvc", "data", "--data")
	if got := n.driver.proxy.count("DeleteVolume"); got != 1 {
		t.Errorf("%d calls of DeleteVolume, want 1", got)
	}
	n.nothingLeft()
}
