package plan

import (
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// A volume is known to the cluster by its record while anything of it may be here, and
// by the wish else.
//
// Faults: A182.
func TestTheRecordSaysUnderWhichNameAVolumeIsAttached(t *testing.T) {
	attached, free := &state.Spec{Driver: "d"}, &state.Spec{Driver: "d", NoAttach: true}
	for name, c := range map[string]struct {
		wished, recorded *state.Spec
		phase            state.Phase
		want             string
	}{
		"wished":                        {attached, nil, state.Absent, "kubernetes.io/csi/d^v"},
		"wished, and needs none":        {free, nil, state.Absent, ""},
		"begun with, needs none by now": {free, attached, state.Entering, "kubernetes.io/csi/d^v"},
		"begun without, needs one now":  {attached, free, state.Present, "kubernetes.io/csi/d^v"},
		"on its way off":                {nil, attached, state.Leaving, "kubernetes.io/csi/d^v"},
		"gone":                          {nil, attached, state.Absent, ""},
	} {
		v := state.Volume{ID: "d^v", Spec: c.recorded, Stage: state.Fact{Phase: c.phase}}
		if got := AttachedAs(state.Want{Spec: c.wished}, v); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Only what a controller attaches, and a pod wants, waits for the Node's lists; what
// waits for something else already says that.
//
// Faults: A180.
func TestAnAttachedVolumeWaitsUntilTheNodeListsIt(t *testing.T) {
	want := func(spec state.Spec, hold string) state.Want {
		return state.Want{Spec: &spec, Hold: hold, Pods: map[state.PodUID]state.WantMount{"a": {}}}
	}
	for name, c := range map[string]struct {
		w      state.Want
		listed bool
		hold   string
	}{
		"not listed":      {want(state.Spec{Driver: "d"}, ""), false, reasonListed},
		"listed":          {want(state.Spec{Driver: "d"}, ""), true, ""},
		"held already":    {want(state.Spec{Driver: "d"}, "waits"), false, "waits"},
		"needs none":      {want(state.Spec{Driver: "d", NoAttach: true}, ""), false, ""},
		"no pod wants it": {state.Want{Spec: &state.Spec{Driver: "d"}}, false, ""},
		"no wish at all":  {state.Want{}, false, ""},
	} {
		if got := UntilListed(c.w, "d^v", c.listed).Hold; got != c.hold {
			t.Errorf("%s: %q, want %q", name, got, c.hold)
		}
	}
}

// Faults: A157.
func TestAVolumeThatNothingAttachesIsNotBegunWithADriverThatIsUp(t *testing.T) {
	w := state.Want{Unattached: "it needs an attachment"}
	for _, c := range []struct {
		up, attaches bool
		want         string
	}{{true, false, "it needs an attachment"}, {true, true, ""}, {false, false, ""}} {
		if got := Unattachable(w, c.up, c.attaches); got != c.want {
			t.Errorf("up %v, attaches %v: %q, want %q", c.up, c.attaches, got, c.want)
		}
	}
}
