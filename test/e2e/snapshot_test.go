package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// Commands make, restore and clone a snapshot. It survives the daemon's death, cannot be
// deleted while a claim waits for it, and is deleted at the driver too: nothing is left.
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

// A snapshot with a freeze is made while the file system is frozen, which is thawed
// afterwards. If the daemon is killed meanwhile, the next one thaws at its start and makes
// the snapshot once. A driver that does not answer blocks no write beyond the limit. A
// volume that is a directory of a larger file system is not frozen, and its snapshot says
// why.
func TestSnapshotOfAFrozenFileSystem(t *testing.T) {
	eachKind(t, func(n *node) {
		t := n.T
		n.Apply(n.driver.class(), claim("data", "64Mi", fileSystem, rwo), harness.Pod("web", harness.FromClaim("data", "data")))
		n.Mounted("web")
		file := filepath.Join(n.HostPath("web", "data"), "f")
		write(t, file, "before")
		if !n.driver.sizes {
			r := n.CLI("", "snapshot", "create", "pvc/data", "--name=still", "--freeze=10s", "--timeout=1s")
			if r.Code == 0 || !strings.Contains(r.Stderr, "only its directory") {
				t.Errorf("of a directory: %s%s", r.Stdout, r.Stderr)
			}
			n.Do("", "delete", "snapshot", "--all", "--yes")
			n.DeletePods("web")
			n.DeleteClaims("data")
			n.nothingLeft()
			return
		}
		consistency := func(name string) string {
			return n.Do("", "get", "snapshots", name, "-o", "jsonpath={.consistency}")
		}
		n.Do("", "snapshot", "create", "pvc/data", "--name=still", "--freeze=1m")
		if got := consistency("still"); got != "frozen" {
			t.Errorf("still is %q", got)
		}
		write(t, file, "after")

		held := n.driver.proxy.hold("CreateSnapshot", false)
		n.Do("", "snapshot", "create", "pvc/data", "--name=killed", "--freeze=1m", "--timeout=0")
		n.reached(held)
		wrote := make(chan error, 1)
		go func() { wrote <- os.WriteFile(file, []byte("killed"), 0o600) }()
		n.daemon.Kill()
		n.start()
		if err := <-wrote; err != nil {
			t.Error(err)
		}
		close(held.on)
		n.DriverUp(n.driver.name)
		n.ready("killed")

		held = n.driver.proxy.hold("CreateSnapshot", false)
		n.Do("", "snapshot", "create", "pvc/data", "--name=slow", "--freeze=100ms", "--timeout=0")
		n.reached(held)
		write(t, file, "slow")
		close(held.on)
		n.ready("slow")
		if got := consistency("slow"); got != "crash" {
			t.Errorf("slow is %q", got)
		}

		all, err := csi.NewControllerClient(n.driver.proxy.conn).ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{})
		if err != nil || len(all.GetEntries()) != 3 {
			t.Errorf("snapshots at the driver: %v, %v", all, err)
		}
		n.Do("", "delete", "snapshot", "--all", "--yes")
		n.DeletePods("web")
		n.DeleteClaims("data")
		n.nothingLeft()
	})
}

// reached waits until a call is held.
func (n *node) reached(c *cut) {
	n.T.Helper()
	n.Eventually("the driver to be called", func() bool {
		select {
		case <-c.reached:
			return true
		default:
			return false
		}
	})
}

// ready waits until a snapshot is ready to use.
func (n *node) ready(name string) {
	n.T.Helper()
	n.Eventually("snapshot "+name+" to be ready", func() bool {
		return n.CLI("", "get", "snapshots", name, "-o", "jsonpath={.readyToUse}").Stdout == "true"
	})
}

// A schedule makes its first snapshot at once, continues after the daemon is killed, and
// keeps its snapshots when it is deleted. The tests of internal/provision/schedule cover due times and
// which snapshots are deleted.
func TestScheduleMakesSnapshots(t *testing.T) {
	eachKind(t, func(n *node) {
		t := n.T
		n.Apply(n.driver.class(), claim("data", "64Mi", fileSystem, rwo))
		if r := n.CLI("", "snapshot", "schedule", "pvc/absent", "--every=daily", "--keep=2"); r.Code == 0 || !strings.Contains(r.Stderr, "claim default/absent") {
			t.Errorf("of a claim that is not there: %s%s", r.Stdout, r.Stderr)
		}
		if r := n.CLI("", "snapshot", "schedule", "pvc/data", "--every=monthly", "--keep=2"); r.Code == 0 || !strings.Contains(r.Stderr, "want hourly, daily, weekly") {
			t.Errorf("of a period that is none: %s%s", r.Stdout, r.Stderr)
		}
		n.Do("", "snapshot", "schedule", "pvc/data", "--every=daily", "--keep=2")
		first := func() string {
			list := strings.Split(n.Do("", "get", "schedules", "-o", "jsonpath={.items[0].snapshots[*]}"), " ")
			if len(list) != 1 {
				t.Errorf("snapshots %q, want one", list)
			}
			return list[0]
		}
		n.Eventually("the schedule to have made a snapshot", func() bool {
			return strings.Contains(n.CLI("", "get", "snapshots").Stdout, "data-daily-") && strings.Contains(n.CLI("", "get", "snapshots").Stdout, "Ready")
		})
		name := first()
		n.daemon.Kill()
		n.start()
		n.DriverUp(n.driver.name)
		n.Eventually("the schedule to be there after a kill", func() bool {
			return strings.Contains(n.CLI("", "get", "schedules").Stdout, "data-daily")
		})
		if again := first(); again != name {
			t.Errorf("after a kill it has %s, and had %s", again, name)
		}
		n.Do("", "delete", "schedule", "data-daily")
		n.Do("", "delete", "snapshot", name)
		n.DeleteClaims("data")
		n.nothingLeft()
	})
}
