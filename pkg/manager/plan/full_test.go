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
