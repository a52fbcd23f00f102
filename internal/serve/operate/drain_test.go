package operate

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// lockedJournal fails the test if the drain may change between reading the record and acting on it.
type lockedJournal struct {
	Journal // nil
	t       *testing.T
	o       *Operator
}

func (j *lockedJournal) LoadBucket(context.Context, string) (state.Values, error) {
	if j.o.draining.TryLock() {
		j.t.Error("an operator's undrain may come while the record of the drain is read, which then wins")
		j.o.draining.Unlock()
	}
	return state.Values{}, nil
}

// drainer returns an operator whose manager does not run.
func drainer(t *testing.T, j Journal, bootID string) *Operator {
	t.Helper()
	m, err := manager.New(manager.Config{Store: journal.NewMemory(), Kernel: struct{ manager.Kernel }{}})
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{
		Journal: j, Manager: m, Audit: audit.Open(t.TempDir(), nil), BootID: bootID, Logger: slog.New(slog.DiscardHandler),
	})
}

func TestTheOperatorHasTheLastWordOfADrain(t *testing.T) {
	j := &lockedJournal{t: t}
	j.o = &Operator{c: Config{Journal: j}}
	if err := j.o.LoadDrain(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// cutJournal is a journal whose client goes while it writes: it writes all the same.
type cutJournal struct {
	memoryJournal
	cut func()
}

func (j cutJournal) CommitBucket(ctx context.Context, bucket string, changes map[string][]byte) error {
	j.cut()
	err := j.memoryJournal.CommitBucket(context.WithoutCancel(ctx), bucket, changes)
	if ctx.Err() != nil {
		return state.ErrUnknown
	}
	return err
}

// An operator who goes while the drain is written finds it in effect: otherwise the next start would unmount all
// volumes for a drain that was reported as failed.
func TestADrainThatIsWrittenIsInEffect(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	o := drainer(t, cutJournal{memoryJournal{journal.NewMemory()}, cancel}, "now")
	if err := o.SetDrain(ctx, audit.By{}, server.Drain{Mode: server.DrainEmpty}); err != nil || o.Draining().Mode != server.DrainEmpty {
		t.Errorf("mode %q, %v", o.Draining().Mode, err)
	}
}

// The same holds for the end of a registration.
func TestARegistrationWhoseEndIsWrittenHasEnded(t *testing.T) {
	r := newRegistrarRig(t, t.TempDir(), map[string][]byte{registeredPrefix + string(handedOver): []byte("/run/d.sock")})
	ctx, cancel := context.WithCancel(t.Context())
	r.c.Audit = audit.Open(t.TempDir(), nil)
	r.c.Journal = cutJournal{memoryJournal{r.memory}, cancel}
	if err := r.UnregisterDriver(ctx, audit.By{}, handedOver); err != nil {
		t.Error(err)
	}
	if err := r.ask(t.Context(), func(context.Context) {
		if len(r.drivers) != 0 {
			t.Error("the driver is still registered")
		}
	}); err != nil {
		t.Error(err)
	}
}

// olderJournal is a journal that was replaced by an older copy.
type olderJournal struct{ memoryJournal }

func (olderJournal) Recovery() state.Recovery { return state.Recovery{Why: "a page was damaged"} }

// The operator's word that no container runs ends where containers may run again in the same boot: after an
// undrain that an older copy of the journal does not know, and after a kubelet. Otherwise the next start
// would unmount what running containers have. The node stays drained, and says why, at every later start.
func TestNothingIsEmptiedOnceContainersMayRun(t *testing.T) {
	for _, c := range []struct {
		name        string
		mode, want  server.DrainMode
		older, word bool   // the journal is an older copy; a kubelet ran
		bootID      string // of the drain
	}{
		{"no doubt", server.DrainEmpty, server.DrainEmpty, false, false, "now"},
		{"older journal", server.DrainEmpty, server.DrainHold, true, false, "now"},
		{"older journal, hold", server.DrainHold, server.DrainHold, true, false, "now"},
		{"older journal, earlier boot", server.DrainEmpty, "", true, false, "before"},
		{"kubelet", server.DrainEmpty, server.DrainHold, false, true, "now"},
		{"kubelet, hold", server.DrainHold, server.DrainHold, false, true, "now"},
		{"kubelet, earlier boot", server.DrainEmpty, "", false, true, "before"}, // as after each stop of the machine
		{"kubelet, no drain", "", "", false, true, "now"},
	} {
		t.Run(c.name, func(t *testing.T) {
			memory := memoryJournal{journal.NewMemory()}
			if c.mode != "" {
				gone, cancel := context.WithCancel(t.Context())
				cancel() // no loop runs that could take the drain
				if err := drainer(t, memory, c.bootID).SetDrain(gone, audit.By{}, server.Drain{Mode: c.mode, Reason: "new disks"}); err != nil {
					t.Fatal(err)
				}
			}
			var first Journal = memory
			if c.older {
				first = olderJournal{memory}
			}
			if c.word {
				if err := drainer(t, first, "now").ContainersRan(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			for start, j := range []Journal{first, memory} { // the loss is accepted before the second
				o := drainer(t, j, "now")
				if err := o.LoadDrain(t.Context()); err != nil {
					t.Fatal(err)
				}
				got := o.Draining()
				if got.Mode != c.want {
					t.Errorf("start %d: mode %q, want %q", start, got.Mode, c.want)
				}
				if got.Mode != c.mode && got.Mode != "" && (!strings.HasPrefix(got.Reason, "new disks; mode empty ended: ")) {
					t.Errorf("start %d: reason %q", start, got.Reason)
				}
			}
		})
	}
}

// A drain of mode empty, as systemd orders one when the machine stops, does not end a plain drain: that holds
// again in the next boot, and when the drain of mode empty ends in the same boot.
func TestAPlainDrainOutlivesOneThatEmptiesTheNode(t *testing.T) {
	plain, empty := server.Drain{Mode: server.DrainHold, Reason: "new disks"}, server.Drain{Mode: server.DrainEmpty, Reason: "the machine stops"}
	for _, c := range []struct {
		name   string
		orders []server.Drain
		end    bool // by EndEmptying
		bootID string
		want   server.Drain
	}{
		{"next boot", []server.Drain{plain, empty}, false, "next", plain},
		{"next boot, emptied twice", []server.Drain{plain, empty, empty}, false, "next", plain},
		{"next boot, nothing before", []server.Drain{empty}, false, "next", server.Drain{}},
		{"same boot", []server.Drain{plain, empty}, false, "first", empty},
		{"ended", []server.Drain{plain, empty}, true, "first", plain},
		{"ended, nothing before", []server.Drain{empty}, true, "first", server.Drain{}},
		{"ended, not emptied", []server.Drain{plain}, true, "first", plain},
		{"ended, not drained", nil, true, "first", server.Drain{}},
		{"undrained before", []server.Drain{plain, {}, empty}, false, "next", server.Drain{}},
		{"undrained while emptied", []server.Drain{plain, empty, {}}, false, "next", server.Drain{}},
		{"plain after", []server.Drain{empty, plain}, false, "next", plain},
	} {
		t.Run(c.name, func(t *testing.T) {
			memory := memoryJournal{journal.NewMemory()}
			at := func(bootID string) *Operator {
				o := drainer(t, memory, bootID)
				if err := o.LoadDrain(t.Context()); err != nil {
					t.Fatal(err)
				}
				return o
			}
			gone, cancel := context.WithCancel(t.Context())
			cancel()                     // no loop runs that could take the drain
			for _, d := range c.orders { // each by a daemon of its own
				if err := at("first").SetDrain(gone, audit.By{}, d); err != nil {
					t.Fatal(err)
				}
			}
			o := at(c.bootID)
			if c.end {
				if err := o.EndEmptying(gone, audit.By{}); err != nil {
					t.Fatal(err)
				}
				if got := o.Draining(); got != c.want {
					t.Errorf("got %+v, want %+v", got, c.want)
				}
			}
			if got := at(c.bootID).Draining(); got != c.want {
				t.Errorf("at the next start: got %+v, want %+v", got, c.want)
			}
		})
	}
}

// fullJournal is an older journal on a disk without room.
type fullJournal struct{ olderJournal }

func (fullJournal) CommitBucket(context.Context, string, map[string][]byte) error {
	return state.ErrFull
}

// A disk without room keeps no daemon down: what the drain has become is in effect, and adopt is refused.
func TestADrainIsDoubtedOnAFullDisk(t *testing.T) {
	memory := memoryJournal{journal.NewMemory()}
	value := []byte(`{"mode":"empty","bootID":"now"}`)
	if err := memory.CommitBucket(t.Context(), operatorBucket, map[string][]byte{drainKey: value}); err != nil {
		t.Fatal(err)
	}
	o := drainer(t, fullJournal{olderJournal{memory}}, "now")
	if err := o.LoadDrain(t.Context()); err != nil || o.Draining().Mode != server.DrainHold {
		t.Errorf("mode %q, %v", o.Draining().Mode, err)
	}
	if err := o.ContainersRan(t.Context()); !errors.Is(err, state.ErrFull) {
		t.Errorf("adopt: %v", err)
	}
}
