package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// A snapshot is made by a verb, outlives the daemon, is restored and cloned by verbs, stays
// while a claim waits for it, and goes when it is deleted, with the driver's: nothing is left.
func TestSnapshotsByVerbs(t *testing.T) {
	eachKind(t, func(n *node) {
		t := n.T
		n.Apply(n.driver.class(), claim("data", "64Mi", fileSystem, rwo), harness.Pod("web", harness.FromClaim("data", "data")))
		n.Mounted("web")
		write(t, filepath.Join(n.HostPath("web", "data"), "f"), "before")
		n.DeletePods("web")
		n.NoVolumes()
		if got := n.Do("", "snapshot", "create", "pvc/data", "--name", "monday"); !strings.Contains(got, "snapshot/monday ready") {
			t.Errorf("create: %s", got)
		}
		n.Apply(harness.Pod("web", harness.FromClaim("data", "data")))
		n.Mounted("web")
		write(t, filepath.Join(n.HostPath("web", "data"), "f"), "after")
		n.daemon.Kill()
		n.start()
		if got := n.Do("", "get", "snapshots"); !strings.Contains(got, "monday") || !strings.Contains(got, "Ready") {
			t.Errorf("after a restart: %s", got)
		}
		n.Do("", "snapshot", "restore", "monday", "pvc/copy")
		n.Do("", "clone", "pvc/data", "pvc/clone")
		n.Apply(harness.Pod("reader", harness.FromClaim("copy", "copy"), harness.FromClaim("clone", "clone")))
		n.Mounted("reader")
		wantFile(t, filepath.Join(n.HostPath("reader", "copy"), "f"), "before")
		wantFile(t, filepath.Join(n.HostPath("reader", "clone"), "f"), "after")
		tiny := strings.NewReplacer("64Mi", "1Ki", "name: snap}", "name: monday}").Replace(restored("tiny", ""))
		n.Apply(tiny)
		if r := n.CLI("", "delete", "snapshot", "monday"); r.Code == 0 || !strings.Contains(r.Stderr, "default/tiny") {
			t.Errorf("delete of one that a claim waits for: %s%s", r.Stdout, r.Stderr)
		}
		n.DeletePods("reader", "web")
		n.DeleteClaims("tiny", "clone", "copy", "data")
		if got := n.Do("", "delete", "snapshot", "monday", "--reason", "restored"); !strings.Contains(got, "snapshot/monday deleted") {
			t.Errorf("delete: %s", got)
		}
		if all, err := csi.NewControllerClient(n.driver.proxy.conn).ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{}); err != nil || len(all.GetEntries()) > 0 {
			t.Errorf("snapshots at the driver: %v, %v", all, err)
		}
		n.nothingLeft()
	})
}
