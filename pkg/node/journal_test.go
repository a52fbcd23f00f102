package node

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// A journal that is damaged while the daemon runs ends it, for its supervisor to start
// it again: it would refuse everything and say that it is ready. The next start goes by
// the spare copy.
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
	if err := os.Truncate(filepath.Join(c.StateDir, "state.db"), 0); err != nil { // as a file system that failed
		t.Fatal(err)
	}
	if _, err := n.Apply(t.Context(), manifestOf(scratchPod)); err == nil {
		t.Error("an object was applied")
	}
	select {
	case err := <-ended:
		if !errors.Is(err, state.ErrDamaged) {
			t.Errorf("ended: %v", err)
		}
	case <-within(t).Done():
		t.Fatal("the daemon runs on")
	}
	n, _ = start(t, c)
	settled(t, n)
	if n.journal.Recovered() == "" {
		t.Error("started again without its spare copy")
	}
}
