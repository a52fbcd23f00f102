package wire

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// If the journal is damaged while the daemon runs, the daemon ends, so that its supervisor restarts it: otherwise it
// would refuse every request and call itself ready. The next start uses the spare copy.
//
// Faults: A185.
func TestAJournalThatIsGivenUpEndsTheDaemon(t *testing.T) {
	c := dirs(t)
	n, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- n.Run(t.Context()) }()
	settled(t, n)
	if err := n.journal.Spare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(c.StateDir, "state.db"), 0); err != nil { // like a file system that failed
		t.Fatal(err)
	}
	if _, err := n.Apply(t.Context(), manifestOf(scratchPod)); err == nil {
		t.Error("an object was applied")
	}
	select {
	case err := <-ended:
		if !errors.Is(err, journal.ErrDamaged) {
			t.Errorf("ended: %v", err)
		}
	case <-within(t).Done():
		t.Fatal("the daemon runs on")
	}
	n, _ = start(t, c)
	settled(t, n)
	if n.journal.Recovery().Why == "" {
		t.Error("started again without its spare copy")
	}
}

// An unreadable record may be that of a mounted volume: the controller does not delete that volume. Problems list the
// record, and the journal's state at the start.
//
// Faults: A003, A184.
func TestAVolumeWhoseRecordCannotBeReadIsInUse(t *testing.T) {
	c := dirs(t)
	if err := os.MkdirAll(c.StateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(c.StateDir, "state.db")
	b, err := journal.OpenBolt(path)
	if err != nil {
		t.Fatal(err)
	}
	v := state.Volume{ID: "d^mounted", Spec: &state.Spec{Driver: "d", Handle: "mounted"}, Stage: state.Fact{Phase: state.Present}}
	if err := errors.Join(b.Commit(t.Context(), map[state.VolumeID]*state.Volume{v.ID: &v}), b.Close()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.ReplaceAll(data, []byte(`"handle":"mounted"`), []byte(`"handle":"MOUNTED"`)), 0o600); err != nil {
		t.Fatal(err)
	}
	n, stop := start(t, c)
	settled(t, n)
	if got := (usage{n}).InUse("d^mounted", "pv-1"); got == "" {
		t.Error("the controller may delete the volume")
	}
	if got := (usage{n}).InUse("d^another", "pv-2"); got != "" {
		t.Errorf("a volume that is not there is in use by %s", got)
	}
	stop()
	if err := os.WriteFile(path, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	n, _ = start(t, c)
	if p := n.Views().Problems(); len(p) != 1 || p[0].Source != "journal" || p[0].Object != path || !strings.Contains(p[0].Message, "records may be lost") {
		t.Errorf("problems: %+v", p)
	}
}
