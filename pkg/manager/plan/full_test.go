package plan

import (
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// If a driver already serves its maximum here, no more volumes are begun, and those that were
// begun go on.
func TestNothingIsBegunOfADriverThatIsFull(t *testing.T) {
	spec := state.Spec{Driver: "d", Handle: "h", Name: "pv", Mode: state.Filesystem, StagePath: "/s"}
	w := state.Want{Spec: new(spec), Pods: map[state.PodUID]state.WantMount{"a": {MountSpec: state.MountSpec{Pod: state.Pod{UID: "a"}, Target: "/a"}}}}
	inline := w
	inline.Spec = new(spec)
	inline.Spec.Ephemeral = true
	for name, c := range map[string]struct {
		want   state.Want
		driver DriverFacts
		volume state.Volume
		held   Kind
		op     Kind
	}{
		"to be attached":  {w, DriverFacts{Attach: true, Stage: true}, state.Volume{}, Attach, None},
		"to be staged":    {w, DriverFacts{Stage: true}, state.Volume{}, Stage, None},
		"to be published": {inline, DriverFacts{Stage: true}, state.Volume{}, Publish, None},
		"begun":           {w, DriverFacts{Stage: true}, state.Volume{Spec: new(spec), Needs: state.Needs{Stage: true}, Stage: state.Fact{Phase: state.Entering}}, None, Stage},
		"staged":          {w, DriverFacts{Stage: true}, state.Volume{Spec: new(spec), Needs: state.Needs{Stage: true}, Stage: state.Fact{Phase: state.Present}}, None, Publish},
	} {
		f := Facts{Driver: c.driver, Synced: true}
		f.Driver.Up, f.Driver.Full = true, "full"
		op, held := Next(c.want, c.volume, f, time.Time{})
		if op.Kind != c.op || held.Step != c.held || (held.Reason == "full") != (c.held != None) {
			t.Errorf("%s: got %v, %+v", name, op, held)
		}
		f.Driver.Full = ""
		if op, held := Next(c.want, c.volume, f, time.Time{}); op.Kind == None {
			t.Errorf("%s, with room: %+v", name, held)
		}
	}
}

// Nothing is begun of a kind whose program is not installed. What was begun goes on, and what is unwanted leaves: these
// calls fail with what they lack.
func TestNothingIsBegunOfAKindThatLacksItsProgram(t *testing.T) {
	spec := state.Spec{Driver: "d", Handle: "h", Name: "d", Mode: state.Filesystem, StagePath: "/s", Builtin: true}
	w := state.Want{Spec: new(spec), Pods: map[state.PodUID]state.WantMount{"a": {MountSpec: state.MountSpec{Pod: state.Pod{UID: "a"}, Target: "/a"}}}}
	staged := state.Volume{Spec: new(spec), Needs: state.Needs{Stage: true}, Stage: state.Fact{Phase: state.Present}}
	inDoubt := staged
	inDoubt.Stage.Phase = state.Entering
	for name, c := range map[string]struct {
		want   state.Want
		volume state.Volume
		held   Kind
		op     Kind
	}{
		"to be begun":         {w, state.Volume{}, Stage, None},
		"in doubt":            {w, inDoubt, None, Stage},
		"staged":              {w, staged, None, Publish},
		"staged and unwanted": {state.Want{}, staged, None, Unstage},
	} {
		f := Facts{Driver: DriverFacts{Up: true, Stage: true, Lacks: "no program"}, Synced: true}
		op, held := Next(c.want, c.volume, f, time.Time{})
		if op.Kind != c.op || held.Step != c.held || (held.Code == NoProgram && held.Reason == "no program") != (c.held != None) {
			t.Errorf("%s: got %v, %+v", name, op, held)
		}
		f.Driver.Lacks = ""
		if op, held := Next(c.want, c.volume, f, time.Time{}); op.Kind == None {
			t.Errorf("%s, with the program: %+v", name, held)
		}
	}
}
