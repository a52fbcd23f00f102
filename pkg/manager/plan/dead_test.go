package plan

import (
	"slices"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Faults: A163.
func TestWhatIsDeadIsMadeAnewOnceNoPodHasIt(t *testing.T) {
	w := groupWish(map[state.PodUID]int64{"a": 0, "b": 0})
	f := Facts{Driver: DriverFacts{Up: true, Stage: true}, Synced: true}
	v, _, _ := settle(t, w, state.Volume{ID: "d^h"}, f)
	lose := func(pod state.PodUID) {
		m := v.Mounts[pod]
		m.Fact, m.Seen = state.Fact{Phase: state.Entering}, state.Seen{}
		v.Mounts = withMount(v.Mounts, pod, m)
	}
	lose("b")
	f.Dead = Dead{Known: true}
	v, ops, held := settle(t, w, v, f)
	if want := []Op{{Kind: Unpublish, Pod: "b"}}; !slices.Equal(ops, want) || held.Code != DeadMount || !held.Dead {
		t.Fatalf("while a has it: %v, held %+v", ops, held)
	}
	delete(w.Pods, "a")
	v.Mounts = withoutMount(v.Mounts, "a")
	f.Synced = false
	if op, held := Next(w, v, f, start); op.Kind != None || held.Code != NotSynced {
		t.Errorf("before the sources have spoken: %v, %+v", op, held)
	}
	f.Synced = true
	f.Dead.Until = start.Add(time.Minute)
	if op, held := Next(w, v, f, start); op.Kind != None || !held.Until.Equal(f.Dead.Until) {
		t.Errorf("before its time: %v, %+v", op, held)
	}
	f.Dead.Until = time.Time{}
	f.Doubt = Doubt{Why: "something is mounted"}
	if op, held := Next(w, v, f, start); op.Kind != None || held.Reason != f.Doubt.Why {
		t.Errorf("in doubt: %v, %+v", op, held)
	}
	f.Doubt = Doubt{}
	if op, _ := Next(w, v, f, start); op.Kind != Unstage {
		t.Errorf("then: %v", op)
	}
	if DeadPause(0) != retryFirst || DeadPause(100) != retryMost {
		t.Errorf("pauses of %v to %v", DeadPause(0), DeadPause(100))
	}
}
