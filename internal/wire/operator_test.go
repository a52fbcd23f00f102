package wire

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/holders"
	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// journalOf writes records into the journal of a node that is not running.
func journalOf(t *testing.T, c Config, volumes ...state.Volume) {
	t.Helper()
	if err := os.MkdirAll(c.StateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	b, err := journal.OpenBolt(filepath.Join(c.StateDir, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range volumes {
		if err := b.Commit(t.Context(), map[state.VolumeID]*state.Volume{v.ID: &v}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

// orphan returns a volume of an absent driver, mounted for a pod that is gone.
func orphan(c Config) state.Volume {
	const uid = "uid-1"
	layout := state.Layout{Root: c.Root}
	return state.Volume{
		ID: state.SharedID("d", "v"), Stage: state.Fact{Phase: state.Leaving}, Needs: state.Needs{Stage: true},
		Spec: &state.Spec{Driver: "d", Handle: "v", Name: "pv", Mode: state.Filesystem, StagePath: layout.StagePath(state.Filesystem, "d", "v", "pv")},
		Mounts: map[state.PodUID]state.Mount{uid: {Fact: state.Fact{Phase: state.Leaving}, MountSpec: state.MountSpec{
			Pod: state.Pod{UID: uid, Namespace: "default", Name: "web"}, Names: []string{"data"}, Target: layout.Target(state.Filesystem, uid, "pv"),
		}}},
	}
}

// settled waits until every source has synced and the manager has applied it.
func settled(t *testing.T, n *Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		changed := n.changed.next()
		if len(n.Views().NotReady()) == 0 {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatal(n.Views().NotReady())
		}
	}
	if err := n.manager.Settle(ctx); err != nil {
		t.Fatal(err)
	}
}

// auditOf lists the actions in a node's audit log and their results.
func auditOf(t *testing.T, n *Node) string {
	t.Helper()
	lines, err := n.audit.Lines()
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, l := range lines {
		switch {
		case l.Begins != nil:
			words = append(words, strings.TrimSpace(l.Begins.Verb+" "+l.Begins.Object+" "+l.Begins.Reason))
		case l.Done:
			words = append(words, "done")
		default:
			words = append(words, "refused")
		}
	}
	return strings.Join(words, "; ")
}

// Faults: A130.
func TestForgetRefusesWhatIsMounted(t *testing.T) {
	c := dirs(t)
	v := orphan(c)
	journalOf(t, c, v)
	target := v.Mounts["uid-1"].Target
	if err := os.MkdirAll(target, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("x", target, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
	n, stop := start(t, c)
	settled(t, n)
	_, err := n.Forget(t.Context(), audit.By{}, server.Forget{Volume: v.ID, Reason: "why not"})
	if !errors.Is(err, server.ErrConflict) || !strings.Contains(err.Error(), "is mounted at "+target) {
		t.Fatalf("got %v", err)
	}
	if items, err := n.Leftovers(t.Context(), audit.By{}, server.GCSafe); err != nil || len(items) != 0 {
		t.Errorf("while there is a record: %+v, %v", items, err)
	}
	if _, err := n.Forget(t.Context(), audit.By{}, server.Forget{Volume: v.ID, Reason: "array scrapped", Mounted: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Forget(t.Context(), audit.By{}, server.Forget{Volume: v.ID, Reason: "again"}); !errors.Is(err, server.ErrNotFound) {
		t.Errorf("a second time: %v", err)
	}
	if got := (usage{n}).InUse(v.ID, "pv"); !strings.Contains(got, "umount "+target) {
		t.Errorf("forgotten, it is in use by %q", got)
	}
	// The mount of a forgotten volume shows as a leftover, and stays.
	items, err := n.Leftovers(t.Context(), audit.By{}, server.GCSafe)
	if err != nil || len(items) != 1 || items[0].Safe || !strings.Contains(items[0].Why, "tmpfs is mounted at "+target) {
		t.Errorf("leftovers %+v, %v", items, err)
	}
	if err := unix.Unmount(target, 0); err != nil {
		t.Fatal(err)
	}
	for changed := n.manager.Changed(); (usage{n}).InUse(v.ID, "pv") != ""; changed = n.manager.Changed() {
		<-changed
	}
	items, err = n.Leftovers(t.Context(), audit.By{}, server.GCSafe)
	if err != nil || len(items) != 1 || !items[0].Removed {
		t.Errorf("unmounted: %+v, %v", items, err)
	}
	want := "forget d^v why not; refused; gc; done; forget d^v array scrapped; done; forget d^v again; refused; gc; done; gc; done"
	if got := auditOf(t, n); got != want {
		t.Errorf("audit log:\n got %s\nwant %s", got, want)
	}
	stop()
	if n, _ = start(t, c); len(n.manager.Volumes()) != 0 {
		t.Errorf("it is remembered: %+v", n.manager.Volumes())
	}
}

func TestWhoAsksForEveryPathOfAVolume(t *testing.T) {
	c := dirs(t)
	v := orphan(c)
	journalOf(t, c, v)
	if err := os.MkdirAll(v.Spec.StagePath, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("x", v.Spec.StagePath, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(v.Spec.StagePath, unix.MNT_DETACH) })
	n, _ := start(t, c)
	settled(t, n)
	f, err := os.Create(filepath.Join(v.Spec.StagePath, "open"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := n.Who(ctx, server.WhoQuery{Volume: v.ID})
	if err != nil || !slices.ContainsFunc(r.Processes, func(p holders.Process) bool { return p.PID == os.Getpid() }) {
		t.Errorf("got %+v, %v", r, err)
	}
	if _, err := n.Who(ctx, server.WhoQuery{Volume: "none"}); !errors.Is(err, server.ErrNotFound) {
		t.Errorf("of none: %v", err)
	}
	if _, err := n.Who(ctx, server.WhoQuery{Path: "x"}); !errors.Is(err, server.ErrInvalid) {
		t.Errorf("of a relative path: %v", err)
	}
}

func TestADrainIsRemembered(t *testing.T) {
	c := dirs(t)
	n, stop := start(t, c)
	settled(t, n)
	if err := n.SetDrain(t.Context(), audit.By{}, server.Drain{Mode: server.DrainHold, Reason: "disks"}); err != nil {
		t.Fatal(err)
	}
	apply(t, n, scratchPod)
	stop()
	n, stop = start(t, c)
	settled(t, n)
	if d := n.Draining(); d.Mode != server.DrainHold || d.Reason != "disks" {
		t.Errorf("after a restart: %+v", d)
	}
	if v := n.manager.Volumes(); len(v) != 1 || !v[0].Volume.Clear() {
		t.Errorf("volumes %+v", v)
	}
	if err := n.SetDrain(t.Context(), audit.By{}, server.Drain{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	uid := n.manager.Pods()[0].Pod.UID
	if err := n.manager.WaitForAttachAndMount(ctx, uid); err != nil {
		t.Fatal(err)
	}
	if err := n.SetDrain(t.Context(), audit.By{}, server.Drain{Mode: server.DrainEmpty}); err != nil {
		t.Fatal(err)
	}
	if err := n.manager.WaitForUnmount(ctx, uid); err != nil {
		t.Fatal(err)
	}
	stop()
	n, stop = start(t, c)
	settled(t, n)
	if d := n.Draining(); d.Mode != server.DrainEmpty {
		t.Errorf("after a restart: %+v", d)
	}
	// Containers that stopped in one boot say nothing about the next.
	value := []byte(`{"mode":"empty","bootID":"another"}`)
	if err := n.journal.CommitBucket(ctx, "operator", map[string][]byte{"drain": value}); err != nil {
		t.Fatal(err)
	}
	stop()
	n, stop = start(t, c)
	if d := n.Draining(); d.Mode != "" {
		t.Errorf("after a reboot: %+v", d)
	}
	settled(t, n)
	if err := n.journal.CommitBucket(ctx, "operator", map[string][]byte{"drain": []byte("?")}); err != nil {
		t.Fatal(err)
	}
	stop()
	n, _ = start(t, c)
	settled(t, n)
	if d := n.Draining(); d.Mode != server.DrainHold {
		t.Errorf("what cannot be read: %+v", d)
	}
}

// If the journal cannot read the operator's drain value, the node still starts, and holds.
//
// Faults: A184.
func TestADrainThatTheJournalCannotReadHolds(t *testing.T) {
	c := dirs(t)
	n, stop := start(t, c)
	settled(t, n)
	stop()
	db, err := bolt.Open(filepath.Join(c.StateDir, "state.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte("kv/" + "operator"))
		if err != nil {
			return err
		}
		return b.Put([]byte("drain"), []byte("no checksum is like this"))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	n, _ = start(t, c)
	settled(t, n)
	if d := n.Draining(); d.Mode != server.DrainHold {
		t.Errorf("%+v", d)
	}
}

func TestARetryIsInTheAuditLog(t *testing.T) {
	n, _ := start(t, dirs(t))
	settled(t, n)
	if err := n.Retry(t.Context(), audit.By{}, server.Retry{Volume: "d^v"}); err != nil {
		t.Fatal(err)
	}
	if got := auditOf(t, n); got != "retry d^v; done" {
		t.Errorf("audit log: %s", got)
	}
}
