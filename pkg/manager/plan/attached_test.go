package plan

import (
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// While anything of a volume may be on the node, its record says how the cluster names it;
// otherwise the wish does.
//
// Items: E10.
// Faults: A182.
func TestTheRecordSaysUnderWhichNameAVolumeIsAttached(t *testing.T) {
	attached, free := &state.Spec{Driver: "d"}, &state.Spec{Driver: "d", NoAttach: true}
	for name, c := range map[string]struct {
		wished, recorded *state.Spec
		phase            state.Phase
		want             string
	}{
		"wished":                          {attached, nil, state.Absent, "kubernetes.io/csi/d^v"},
		"wished, and needs none":          {free, nil, state.Absent, ""},
		"begun with, needs none any more": {free, attached, state.Entering, "kubernetes.io/csi/d^v"},
		"begun without, needs one now":    {attached, free, state.Present, "kubernetes.io/csi/d^v"},
		"on its way off":                  {nil, attached, state.Leaving, "kubernetes.io/csi/d^v"},
		"gone":                            {nil, attached, state.Absent, ""},
	} {
		v := state.Volume{ID: "d^v", Spec: c.recorded, Stage: state.Fact{Phase: c.phase}}
		if got := AttachedAs(state.Want{Spec: c.wished}, v); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A mount in use that was made with another attachment, by its UID or its publish context, is a problem. One
// that no pod uses is undone, and what is not known is no finding.
//
// Faults: A182.
func TestAMountOfAnEarlierAttachmentIsTold(t *testing.T) {
	x, y := map[string]string{"device": "x"}, map[string]string{"device": "y"}
	for name, c := range map[string]struct {
		was, is  string
		had, has map[string]string
		hold     string
		phase    state.Phase
		wanted   bool
		want     string
	}{
		"the same one":          {"1", "1", x, x, "", state.Present, true, ""},
		"another one":           {"1", "2", x, x, "", state.Present, true, "by UID 2 (its UID differs)"},
		"another context":       {"1", "1", x, y, "", state.Present, true, "(its publish context differs)"},
		"both":                  {"1", "2", x, y, "", state.Present, true, "VolumeAttachment UID 1, and"},
		"an old record":         {"", "2", x, y, "", state.Present, true, "VolumeAttachment UID unknown"},
		"an old record, same":   {"", "2", x, x, "", state.Present, true, ""},
		"begun without one":     {"", "2", nil, y, "", state.Present, true, ""},
		"not read":              {"1", "", x, nil, "waits", state.Present, true, ""},
		"needs none any more":   {"1", "", x, nil, "", state.Present, true, ""},
		"used by no pod":        {"1", "2", x, y, "", state.Leaving, true, ""},
		"not mounted":           {"1", "2", x, y, "", state.Absent, true, ""},
		"wanted by no pod":      {"1", "2", x, y, "", state.Present, false, ""},
		"waits for the lists":   {"1", "2", x, y, reasonListed, state.Present, true, ""},
		"not published for all": {"1", "2", x, y, "", state.Entering, true, ""},
	} {
		v := state.Volume{ID: "d^v", Spec: &state.Spec{Driver: "d", Attachment: c.was, PublishContext: c.had}}
		if c.phase != state.Absent {
			v.Mounts = map[state.PodUID]state.Mount{"a": {Fact: state.Fact{Phase: c.phase}}}
		}
		w := state.Want{Spec: &state.Spec{Driver: "d", Attachment: c.is, PublishContext: c.has}, Hold: c.hold}
		if c.wanted {
			w.Pods = map[state.PodUID]state.WantMount{"a": {}}
		}
		if got := AttachedAnew(w, v); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got := AttachedAnew(state.Want{}, state.Volume{}); got != "" {
		t.Errorf("no record: %q", got)
	}
}

// Only a volume that a controller attaches and a pod wants waits for the Node's lists. If it
// already waits for something else, it keeps that reason.
//
// Items: A21, A22.
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
		if got := HoldUntilListed(c.w, "d^v", c.listed).Hold; got != c.hold {
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

// attachRequired that turns false below a mounted volume leaves the volume in the Node's
// list until it is unstaged, and no longer: its VolumeAttachment may be deleted then
// (kubernetes/kubernetes#141521).
//
// Items: B14.
func TestAVolumeThatNeedsNoAttachmentLeavesTheListOnceItIsUnstaged(t *testing.T) {
	f := Facts{Driver: DriverFacts{Up: true, Stage: true}, Synced: true} // the cluster attaches
	w := variant{}.wants()[1]
	v, _, _ := settle(t, w, state.Volume{ID: "d^h"}, f)
	const name = "kubernetes.io/csi/d^h"
	if got := AttachedAs(w, v); got != name || !v.InUse() {
		t.Fatalf("mounted: %q, want %q", got, name)
	}
	w.Spec = new(*w.Spec)
	w.Spec.NoAttach = true
	for range 2 {
		if got := AttachedAs(w, v); got != name {
			t.Errorf("needed no more, and mounted: %q, want %q still", got, name)
		}
		v, _, _ = settle(t, w, v, f)
	}
	gone, _, _ := settle(t, state.Want{}, v, f)
	if got := AttachedAs(state.Want{}, gone); got != "" || gone.InUse() {
		t.Errorf("unstaged, and not wanted: %q", got)
	}
	again, _, _ := settle(t, w, gone, f)
	if got := AttachedAs(w, again); got != "" || !again.InUse() {
		t.Errorf("mounted again, without an attachment: %q", got)
	}
}

// A driver whose controller has an endpoint of its own: a call waits for the part that serves it, and
// attaching also for the node part, whose node id it needs. With one endpoint, all wait for that.
func TestACallWaitsForThePartThatServesIt(t *testing.T) {
	here, away := "", "the controller is away"
	for name, c := range map[string]struct {
		up         bool
		controller *string
		waits      map[Kind]Code
	}{
		"one endpoint, up":       {true, nil, nil},
		"one endpoint, away":     {false, nil, map[Kind]Code{Attach: DriverDown, Detach: DriverDown, Stage: DriverDown}},
		"both up":                {true, &here, nil},
		"the controller is away": {true, &away, map[Kind]Code{Attach: AttacherDown, Detach: AttacherDown}},
		"the node part is away":  {false, &here, map[Kind]Code{Attach: DriverDown, Stage: DriverDown}},
		"both are away":          {false, &away, map[Kind]Code{Attach: DriverDown, Detach: AttacherDown, Stage: DriverDown}},
	} {
		d := DriverFacts{Up: c.up, Why: "the driver is away", Controller: c.controller}
		for _, call := range []Kind{Attach, Detach, Stage} {
			ch := chooser{Facts: Facts{Driver: d}}
			ch.propose(Op{Kind: call}, nil)
			if ch.held.Code != c.waits[call] || (ch.op.Kind == call) != (c.waits[call] == "") {
				t.Errorf("%s: %s: %q (%s), want %q", name, call, ch.held.Code, ch.held.Reason, c.waits[call])
			}
		}
	}
}
