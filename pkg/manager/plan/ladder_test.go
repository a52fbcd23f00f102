package plan

import (
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// leaving is a staged volume whose mount for pod a is leaving.
func leaving(f Facts) (state.Volume, Op) {
	w := variant{stage: true}.wants()[1]
	v := state.Volume{ID: "d^h"}
	for _, op := range []Op{{Kind: Stage}, {Kind: Publish, Pod: "a", Revision: "1"}} {
		v = Complete(Begin(v, op, w, f), op, Result{}, start)
	}
	op := Op{Kind: Unpublish, Pod: "a"}
	return Begin(v, op, state.Want{}, f), op
}

func ladderFacts() Facts {
	return Facts{
		Driver: DriverFacts{Up: true, Stage: true}, Synced: true,
		Ladder: Ladder{{Step: state.UnmountForce, After: time.Minute}, {Step: state.UnmountLazy, After: time.Hour}},
	}
}

// An unmount that fails climbs its ladder: each step is made when it is due and not before, no
// pause delays it, and the status shows every step.
func TestAnUnmountClimbsItsLadder(t *testing.T) {
	f := ladderFacts()
	v, op := leaving(f)
	if c := ProgressOf(v, Op{}, f.Ladder); c != nil {
		t.Errorf("before the first call: %+v", c)
	}
	if c := ProgressOf(v, op, f.Ladder); c != nil {
		t.Errorf("before anything failed: %+v", c)
	}
	fail := func(at time.Time) {
		v = Complete(Begin(v, op, state.Want{}, f), op, Result{Err: callError(state.Final)}, at)
	}
	fail(start)
	if next, held := Next(state.Want{}, v, f, start); next.Kind != None || !held.Until.Equal(start.Add(time.Minute)) {
		t.Errorf("after a final failure: next %v, held %+v, want until the first step", next, held)
	}
	if c := ProgressOf(v, Op{}, f.Ladder); c == nil || c.Step != "" || c.Next != state.UnmountForce || !c.At.Equal(start.Add(time.Minute)) || c.Path != "/pods/a" || !c.Since.Equal(start) {
		t.Errorf("shown: %+v", c)
	}
	for at, want := range map[time.Duration]state.UnmountStep{
		time.Minute: state.UnmountForce, 59 * time.Minute: state.UnmountForce, time.Hour: state.UnmountLazy, 24 * time.Hour: state.UnmountLazy,
	} {
		if next, _ := Next(state.Want{}, v, f, start.Add(at)); next.Kind != Unpublish || next.Step != want {
			t.Errorf("after %v: %v by %v, want by %v", at, next, next.Step, want)
		}
	}
	op.Step = state.UnmountForce
	fail(start.Add(time.Minute))
	if next, held := Next(state.Want{}, v, f, start.Add(61*time.Second)); next.Kind != None || held.Until.IsZero() {
		t.Errorf("a step that failed: %v, held %+v, want a pause", next, held)
	}
	if c := ProgressOf(v, Op{}, f.Ladder); c == nil || c.Step != state.UnmountForce || c.Next != state.UnmountLazy {
		t.Errorf("shown: %+v", c)
	}
	op.Step = state.UnmountLazy
	fail(start.Add(time.Hour))
	if c := ProgressOf(v, Op{}, f.Ladder); c == nil || c.Step != state.UnmountLazy || c.Next != "" || !c.At.IsZero() {
		t.Errorf("shown: %+v", c)
	}
	v = Complete(Begin(v, op, state.Want{}, f), op, Result{}, start)
	if next, _ := Next(state.Want{}, v, f, start); next != (Op{Kind: Unstage}) {
		t.Errorf("what comes after it: %+v, want a normal Unstage", next)
	}
}

// A volume without a ladder is unmounted normally, however long that fails. So is one whose
// unmount has failed only in an earlier run of the daemon, since the clock may have jumped.
func TestNothingIsForcedWithoutAWord(t *testing.T) {
	f := ladderFacts()
	v, op := leaving(f)
	v = Complete(v, op, Result{Err: callError(state.Failed)}, start)
	m := v.Mounts["a"]
	failed := m.Retry()
	failed.Here = time.Time{} // the journal does not store it
	m.Failed = &failed
	earlier := v
	earlier.Mounts = withMount(v.Mounts, "a", m)
	if next, _ := Next(state.Want{}, Reset(earlier), f, start.Add(1e6*time.Hour)); next.Kind != Unpublish || next.Step != state.UnmountNormal {
		t.Errorf("what failed in an earlier run: %+v", next)
	}
	if c := ProgressOf(earlier, Op{}, f.Ladder); c == nil || c.Next != state.UnmountForce || !c.At.IsZero() {
		t.Errorf("shown: %+v", c)
	}
	f.Ladder = nil
	if next, _ := Next(state.Want{}, v, f, start.Add(1e6*time.Hour)); next.Kind != Unpublish || next.Step != state.UnmountNormal {
		t.Errorf("without a policy: %+v", next)
	}
	if c := ProgressOf(v, Op{}, nil); c == nil || c.Next != "" {
		t.Errorf("shown: %+v", c)
	}
	// Calls that make something are never forced.
	made := Complete(Begin(state.Volume{ID: "d^h"}, Op{Kind: Stage}, variant{stage: true}.wants()[1], ladderFacts()), Op{Kind: Stage}, Result{Err: callError(state.Failed)}, start)
	if next, _ := Next(variant{stage: true}.wants()[1], made, ladderFacts(), start.Add(1e6*time.Hour)); next != (Op{Kind: Stage}) {
		t.Errorf("a Stage that fails: %+v", next)
	}
}

// An order applies to the one unmount that was stuck when it was given, and waits for no pause.
func TestAnOrderIsForWhatIsStuck(t *testing.T) {
	f := ladderFacts()
	v, op := leaving(f)
	f.Ladder = nil
	if _, stuck := Stuck(v, Op{}); stuck {
		t.Error("stuck before anything failed")
	}
	if got, stuck := Stuck(v, op); !stuck || got != op {
		t.Errorf("a call in flight: %v %v", got, stuck)
	}
	v = Complete(v, op, Result{Err: callError(state.Final)}, start)
	f.Order, _ = Stuck(v, Op{})
	f.Order.Step = state.UnmountLazy
	if next, _ := Next(state.Want{}, v, f, start); next != f.Order {
		t.Errorf("next is %+v, want %+v", next, f.Order)
	}
	v = Complete(Begin(v, f.Order, state.Want{}, f), f.Order, Result{}, start)
	if next, _ := Next(state.Want{}, v, f, start); next != (Op{Kind: Unstage}) {
		t.Errorf("next is %+v, want a normal Unstage", next)
	}
	v = Complete(Begin(v, Op{Kind: Unstage}, state.Want{}, f), Op{Kind: Unstage}, Result{Err: callError(state.Failed)}, start)
	if got, stuck := Stuck(v, Op{}); !stuck || got.Kind != Unstage {
		t.Errorf("an Unstage that failed: %v %v", got, stuck)
	}
	if c := ProgressOf(v, Op{}, nil); c == nil || c.Path != stagePath || c.Pod != "" {
		t.Errorf("shown: %+v", c)
	}
}

func TestLaddersByDriver(t *testing.T) {
	rest, one := Ladder{{Step: state.UnmountForce}}, Ladder{{Step: state.UnmountLazy}}
	l := Ladders{AnyDriver: rest, "d": one, "normal": nil}
	for name, want := range map[state.DriverName]int{"d": 1, "other": 1, "normal": 0} {
		if got := l.Of(name); len(got) != want || want == 1 && (got[0].Step == state.UnmountLazy) != (name == "d") {
			t.Errorf("%s: %v", name, got)
		}
	}
	if Ladders(nil).Of("d") != nil {
		t.Error("a ladder of none")
	}
}
