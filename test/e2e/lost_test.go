package e2e

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// having counts the objects for which is holds.
func having[T any](all map[string]T, is func(T) bool) (n int) {
	for _, one := range all {
		if is(one) {
			n++
		}
	}
	return n
}

// A deletion that waits at its driver is in the spare copy. If that replaces a damaged journal, the deletion may have ended
// since and its claim been made again: the next daemon carries it out neither for a claim nor for a snapshot or a named
// volume, says so in each list with the command, and does not call the driver before an operator accepts the loss. A
// deletion that is asked for again is carried out at once.
//
// Faults: A186.
func TestADeletionFromTheSpareCopyWaitsForAnOperator(t *testing.T) {
	eachKind(t, func(n *node) {
		t := n.T
		n.Apply(n.driver.class(), claim("old", "64Mi", fileSystem, rwo), claim("again", "64Mi", fileSystem, rwo), claim("kept", "64Mi", fileSystem, rwo))
		n.Do("", "snapshot", "create", "pvc/kept", "--name", "monday")
		harness.Until(n.Node, "the claims to be bound", n.API.WatchClaims, func(have map[string]server.ClaimStatus) bool {
			return having(have, func(c server.ClaimStatus) bool { return c.Phase == "Bound" }) == 3
		})
		n.driver.proc.Kill()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for _, name := range []string{"old", "again"} {
			go n.API.DeleteClaim(ctx, server.ClaimDeletion{Namespace: "default", Name: name})
		}
		go n.API.DeleteSnapshot(ctx, server.SnapshotDeletion{Namespace: "default", Name: "monday"})
		harness.Until(n.Node, "the claims to be deleted", n.API.WatchClaims, func(have map[string]server.ClaimStatus) bool {
			return having(have, func(c server.ClaimStatus) bool { return c.Phase == "Deleting" }) == 2
		})
		harness.Until(n.Node, "the snapshot to be deleted", n.API.WatchSnapshots, func(have map[string]server.SnapshotStatus) bool {
			return having(have, func(s server.SnapshotStatus) bool { return s.Phase == "Deleting" }) == 1
		})
		n.daemon.Stop() // makes the spare copy
		calls := []string{"DeleteVolume", "DeleteSnapshot"}
		before := n.driver.proxy.count(calls...)
		must(t, os.WriteFile(n.Path("state/state.db"), bytes.Repeat([]byte("torn"), 4096), 0o600))
		n.driver.start()
		n.start()
		n.DriverUp(n.driver.name)
		harness.Until(n.Node, "the deletions to say what they wait for", n.API.WatchClaims, func(have map[string]server.ClaimStatus) bool {
			return having(have, func(c server.ClaimStatus) bool { return strings.Contains(c.Reason, "csi-volmgr journal accept") }) == 2
		})
		for _, args := range [][]string{
			{"get", "pvc", "old"}, {"get", "snapshots", "monday"}, {"get", "problems"}, {"explain", "pvc", "old"}, {"explain", "snapshot", "monday"},
		} {
			if said := n.Do("", args...); !strings.Contains(said, "csi-volmgr journal accept") || strings.Contains(said, "continues automatically") {
				t.Errorf("%v: %s", args, said)
			}
		}
		for _, object := range []string{"persistentvolumeclaim default/old", "snapshot default/monday"} {
			if p := n.problemOf(object); !strings.Contains(p, "csi-volmgr journal accept") {
				t.Errorf("problem of %s: %s", object, p)
			}
		}
		n.Do("", "delete", "pvc", "again")
		if got := n.driver.proxy.count(calls...) - before; got != 1 {
			t.Errorf("%d deletions, and one was asked for", got)
		}
		n.Do("", "journal", "accept", "--reason", "all were old")
		harness.Until(n.Node, "the old claim to be gone", n.API.WatchClaims, func(have map[string]server.ClaimStatus) bool { return len(have) == 1 })
		harness.Until(n.Node, "the snapshot to be gone", n.API.WatchSnapshots, func(have map[string]server.SnapshotStatus) bool { return len(have) == 0 })
		if got := n.driver.proxy.count(calls...) - before; got != 3 {
			t.Errorf("%d deletions after the loss was accepted, want 3", got)
		}
		n.DeleteClaims("kept")
		n.nothingLeft()
	})
}
