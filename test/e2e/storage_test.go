package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// gc --storage lists exactly the volumes and snapshots that have no record, and deletes
// none.
func TestStorageThatNoRecordKnowsIsListed(t *testing.T) {
	localOnly(t)
	t.Parallel()
	n := newNode(t, kinds()[0])
	n.Apply(n.driver.class(), claim("data", "64Mi", fileSystem, rwo), harness.Pod("web", harness.FromClaim("data", "data")))
	n.Mounted("web")
	n.Do("", "snapshot", "create", "pvc/data", "--name", "known")
	if said := n.Do("", "gc", "--storage"); !strings.HasPrefix(said, "0 that no record") {
		t.Errorf("gc --storage says %q", said)
	}
	conn, err := dial(n.driver.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := csi.NewControllerClient(conn)
	made, err := client.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
		Name: "of-another", CapacityRange: &csi.CapacityRange{RequiredBytes: 64 << 20},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	volume := made.GetVolume().GetVolumeId()
	cut, err := client.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "of-another", SourceVolumeId: volume})
	if err != nil {
		t.Fatal(err)
	}
	found, err := n.API.Unowned(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, i := range found.Items {
		got = append(got, i.Kind+" "+i.Handle+" of "+i.Of)
	}
	want := []string{"volume " + volume + " of ", "snapshot " + cut.GetSnapshot().GetSnapshotId() + " of " + volume}
	if !slices.Equal(got, want) || len(found.Unlisted) > 0 {
		t.Errorf("got %q, want %q; %+v", got, want, found.Unlisted)
	}
	for _, call := range []string{"DeleteVolume", "DeleteSnapshot"} {
		if n := n.driver.proxy.count(call); n != 0 {
			t.Errorf("%d calls of %s", n, call)
		}
	}
}
