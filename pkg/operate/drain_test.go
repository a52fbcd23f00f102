package operate

import (
	"context"
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
