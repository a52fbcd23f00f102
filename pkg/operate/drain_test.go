package operate

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/audit"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/server"
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
	m, err := manager.New(manager.Config{Store: state.NewMemory(), Kernel: struct{ manager.Kernel }{}})
	if err != nil {
		t.Fatal(err)
	}
	o := New(Config{Journal: cutJournal{memoryJournal{state.NewMemory()}, cancel}, Manager: m, Audit: audit.Open(t.TempDir(), nil)})
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
		{"kubelet, no drain", "", "", false, true, "now"},
	} {
		t.Run(c.name, func(t *testing.T) {
			memory := memoryJournal{state.NewMemory()}
			at := func(bootID string, j Journal) *Operator {
				m, err := manager.New(manager.Config{Store: state.NewMemory(), Kernel: struct{ manager.Kernel }{}})
				if err != nil {
					t.Fatal(err)
				}
				return New(Config{
					Journal: j, Manager: m, Audit: audit.Open(t.TempDir(), nil), BootID: bootID, Logger: slog.New(slog.DiscardHandler),
				})
			}
			if c.mode != "" {
				gone, cancel := context.WithCancel(t.Context())
				cancel() // no loop runs that could take the drain
				if err := at(c.bootID, memory).SetDrain(gone, audit.By{}, server.Drain{Mode: c.mode, Reason: "new disks"}); err != nil {
					t.Fatal(err)
				}
			}
			var first Journal = memory
			if c.older {
				first = olderJournal{memory}
			}
			if c.word {
				if err := at("now", first).ContainersRan(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			for start, j := range []Journal{first, memory} { // the loss is accepted before the second
				o := at("now", j)
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
