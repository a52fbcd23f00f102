package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// reboot ends daemon and driver at once, removes what a reboot removes, and starts both again. The
// journal then names another boot than this one.
func (n *node) reboot() {
	n.T.Helper()
	n.daemon.Kill()
	n.driver.proc.Kill()
	for _, path := range n.Mounts() {
		if err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW); err != nil {
			n.T.Errorf("unmount %s: %v", path, err)
		}
	}
	for _, device := range n.Loops() {
		f, err := os.Open(device)
		if err != nil {
			n.T.Error(err)
			continue
		}
		unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0) // it may be gone with its mount
		f.Close()
	}
	store, err := journal.OpenBolt(filepath.Join(n.Path("state"), "state.db"))
	if err != nil {
		n.T.Fatal(err)
	}
	if err := store.SetBootID(n.T.Context(), "the boot before"); err != nil {
		n.T.Error(err)
	}
	if err := store.Close(); err != nil {
		n.T.Fatal(err)
	}
	n.driver.start()
	n.start()
	n.DriverUp(n.driver.name)
}

// A driver counts its publications on disk. Two reboots, a Publish whose answer the first of them cut
// off, and an Unpublish that fails after it leave a count of two at some targets: all volumes have their
// data after each reboot, and all are removed. The second party is the pod that shares the claim.
func TestVolumesAreRemovedAfterReboots(t *testing.T) {
	eachKind(t, func(n *node) {
		count := func(faults ...csistrict.Fault) {
			if !n.driver.strict {
				return
			}
			if err := csistrict.WriteScript(n.driver.stateDir(), csistrict.Script{Counts: true, Faults: faults}); err != nil {
				n.T.Fatal(err)
			}
		}
		count()
		disk := harness.FromClaim("disk", "disk")
		disk.Block = true
		n.Apply(n.driver.class(), claim("data", "64Mi", fileSystem, rwo), claim("disk", "32Mi", block, rwo),
			harness.Pod("web", harness.FromClaim("data", "data")), harness.Pod("logs", harness.FromClaim("data", "data")), harness.Pod("db", disk))
		for _, pod := range []string{"web", "logs", "db"} {
			n.Mounted(pod)
		}
		write(n.T, filepath.Join(n.HostPath("web", "data"), "f"), "before")
		for range 2 {
			count(csistrict.Fault{ID: "refuses", Call: "NodeUnpublishVolume", Times: 1, Code: uint32(codes.PermissionDenied)},
				csistrict.Fault{ID: "loses", Call: "NodePublishVolume", Times: 2, Drop: true})
			n.reboot()
			for _, pod := range []string{"web", "logs", "db"} {
				n.Mounted(pod)
			}
			wantFile(n.T, filepath.Join(n.HostPath("logs", "data"), "f"), "before")
		}
		count()
		n.DeletePods("web", "logs", "db")
		n.DeleteClaims("data", "disk")
		n.nothingLeft()
	})
}
