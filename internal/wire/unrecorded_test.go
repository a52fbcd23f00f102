package wire

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// A new journal has no record of a mounted volume: the volume is not deleted, over any number of starts, until an
// operator says that no pod uses it.
//
// Faults: A186.
func TestWhatANewJournalDoesNotKnowCountsAsInUse(t *testing.T) {
	c := dirs(t)
	keepVolume(t, c, `"reclaimPolicy":"Delete",`)
	target := state.Layout{Root: c.Root}.Target(state.Filesystem, "u-1", "pvc-u")
	if err := os.MkdirAll(target, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("x", target, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
	claim := server.ClaimDeletion{Namespace: "default", Name: "data"}
	var n *Node
	for range 2 {
		var stop func()
		n, stop = start(t, c)
		settled(t, n)
		for n.Manager().Unrecorded().Unknown {
			<-n.Manager().Changed()
		}
		if _, err := n.DeleteClaim(within(t), audit.By{}, claim); !errors.Is(err, server.ErrConflict) || !strings.Contains(err.Error(), target) {
			t.Errorf("delete the claim: %v", err)
		}
		if err := n.controller.Delete(within(t), controller.Key{Namespace: claim.Namespace, Name: claim.Name}, false); !errors.Is(err, controller.ErrInUse) {
			t.Errorf("delete the volume: %v", err)
		}
		if got := (usage{n}).InUse("d.example^h-2", "pvc-v"); got != "" {
			t.Errorf("another volume is in use by %s", got)
		}
		if d := strings.Join(n.Views().Degraded(), "\n"); !strings.Contains(d, "records may be lost") || !strings.Contains(d, target+": mounted without a record: pod u-1 may use it") {
			t.Errorf("degraded: %s", d)
		}
		if n.Known().Unsure == "" {
			t.Error("leftovers are removed although records may be lost")
		}
		stop()
	}
	n, _ = start(t, c)
	settled(t, n)
	places, err := n.AcceptRecovery(within(t), audit.By{}, "looked with findmnt")
	if err != nil || len(places) > 1 {
		t.Fatalf("%v, %v", places, err)
	}
	if _, err := n.AcceptRecovery(within(t), audit.By{}, "again"); !errors.Is(err, server.ErrNotFound) {
		t.Errorf("a second time: %v", err)
	}
	for (usage{n}).InUse("d.example^h-1", "pvc-u") != "" {
		<-n.Manager().Changed()
	}
	if d := n.Views().Degraded(); len(d) != 0 || n.Known().Unsure != "" {
		t.Errorf("once accepted: %v, %q", d, n.Known().Unsure)
	}
}
