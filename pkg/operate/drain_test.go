package operate

import (
	"context"
	"testing"

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
