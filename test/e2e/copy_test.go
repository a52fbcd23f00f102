package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// A claim made from a snapshot has the snapshot's content, without what was written later.
func TestSnapshotIsRestored(t *testing.T) {
	eachKind(t, func(n *node) {
		t, p := n.T, n.driver.proxy
		n.Apply(n.driver.class(), claim("data", "64Mi", fileSystem, rwo), harness.Pod("web", harness.FromClaim("data", "data")))
		n.Mounted("web")
		write(t, filepath.Join(n.HostPath("web", "data"), "f"), "before")
		n.DeletePods("web")
		n.NoVolumes()
		snap, err := csi.NewControllerClient(p.conn).CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{SourceVolumeId: n.handleOf("data"), Name: "snap"})
		if err != nil {
			t.Fatalf("take a snapshot: %v", err)
		}
		id := snap.GetSnapshot().GetSnapshotId()
		n.Apply(harness.Pod("web", harness.FromClaim("data", "data")))
		n.Mounted("web")
		write(t, filepath.Join(n.HostPath("web", "data"), "f"), "after")

		n.Apply(restored("nothing", ""), harness.Pod("waits", harness.FromClaim("data", "nothing")))
		n.blocked("waits", "snapshot default/snap", "was not found")
		n.Apply(restored("copy", id), harness.Pod("reader", harness.FromClaim("data", "copy")))
		n.Mounted("reader")
		wantFile(t, filepath.Join(n.HostPath("reader", "data"), "f"), "before")
		wantFile(t, filepath.Join(n.HostPath("web", "data"), "f"), "after")
		n.DeletePods("reader", "web", "waits")
		n.DeleteClaims("copy", "data", "nothing")
		if _, err := csi.NewControllerClient(p.conn).DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: id}); err != nil {
			t.Errorf("delete the snapshot: %v", err)
		}
		n.nothingLeft()
	})
}

// restored returns a claim of snapshot snap, with an annotation that names the driver's id
// of the snapshot if id is not "".
func restored(name, id string) string {
	doc := strings.Replace(claim(name, "64Mi", fileSystem, rwo), "spec:\n",
		"spec:\n  dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: snap}\n", 1)
	if id == "" {
		return doc
	}
	return strings.Replace(doc, "{name: "+name+"}", "{name: "+name+", annotations: {csi-volmgr.dev/snapshot-handle: "+id+"}}", 1)
}

// handleOf returns the driver's id of a claim's volume.
func (n *node) handleOf(claim string) (handle string) {
	n.T.Helper()
	harness.Until(n.Node, "claim "+claim+" to have a volume", n.API.WatchPersistentVolumes, func(all map[string]server.PVStatus) bool {
		for _, pv := range all {
			if pv.Claim == "default/"+claim {
				handle = pv.Handle
			}
		}
		return handle != ""
	})
	return handle
}
