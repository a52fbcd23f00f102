package plan

import (
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// grown is a volume that had 1 byte when it was published to a and b, and should have 9.
func grown(change func(*state.Want, *Facts)) (state.Want, state.Volume, Facts) {
	w, f := variant{}.wants()[2], Facts{Driver: DriverFacts{Up: true, Expand: true}, Synced: true}
	w.SizeBytes = 9
	if change != nil {
		change(&w, &f)
	}
	v := state.Volume{ID: "d^h"}
	for _, pod := range pods {
		op := Op{Kind: Publish, Pod: pod, Revision: "1"}
		v = Complete(Begin(v, op, w, f), op, Result{}, start)
	}
	return w, v, f
}

// Items: I01, I11, I13, I14.
func TestWhoExpandsNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*state.Want, *Facts)
		size   int64  // the size in the record afterwards
		held   string // why it waits
	}{
		"no pod against it":           {size: 1},
		"a driver without the call":   {func(_ *state.Want, f *Facts) { f.Driver.Expand = false }, 9, ""},
		"the claim says it is so":     {func(w *state.Want, _ *Facts) { w.Grown = true }, 9, ""},
		"the claim says it cannot be": {func(w *state.Want, _ *Facts) { w.NoGrow = "infeasible" }, 1, "infeasible"},
	} {
		w, v, f := grown(tc.change)
		v, changed := Resize(v, w, f)
		if v.SizeBytes != tc.size || changed != (tc.size == 9) {
			t.Errorf("%s: size %d, news: %v", name, v.SizeBytes, changed)
		}
		op, held := Next(w, v, f, start)
		if calls := op.Kind == Expand; calls != (name == "no pod against it") || held.Reason != tc.held {
			t.Errorf("%s: next is %v, held %+v", name, op, held)
		}
		if again, changed := Resize(v, w, f); changed || again.SizeBytes != v.SizeBytes {
			t.Errorf("%s: news a second time", name)
		}
	}
	// While the driver is down, it is unknown whether it has the call.
	w, v, f := grown(nil)
	f.Driver = DriverFacts{}
	if now, changed := Resize(v, w, f); changed || now.SizeBytes != 1 {
		t.Errorf("while the driver is away: size %d", now.SizeBytes)
	}
	// And a pod that waits for it to grow says so.
	f.Driver.Why = "driver d has not registered"
	if op, held := Next(w, v, f, start); op.Kind != None || held.Step != Expand || held.Reason != f.Driver.Why {
		t.Errorf("while the driver is away: next is %v, held %+v", op, held)
	}
	v = Complete(v, Op{Kind: Expand, Pod: "a", SizeBytes: 9}, Result{Err: callError(state.Final)}, start)
	v, _ = Resize(v, w, f)
	if op, held := Next(w, v, f, start); op.Kind != None || held.Reason != "" {
		t.Errorf("while the driver is away and no pod waits: next is %v, held %+v", op, held)
	}
}

// A pod whose volume has to grow waits until that is done or turns out to be impossible. A pod
// that already has the volume does not wait. A pod that waits is unmounted like any other.
//
// Items: I02, I08, I17.
func TestAPodWaitsForAVolumeThatIsToGrow(t *testing.T) {
	expand := Op{Kind: Expand, Pod: "a", SizeBytes: 9}
	waiting := func(v state.Volume) int {
		n := 0
		for _, m := range v.Mounts {
			if m.Waits {
				n++
			}
		}
		return n
	}
	for name, tc := range map[string]struct {
		change func(*state.Want, *Facts)
		ends   func(w *state.Want, v state.Volume) state.Volume
		before int
		after  int
	}{
		"grown": {before: 2, ends: func(_ *state.Want, v state.Volume) state.Volume { return Complete(v, expand, Result{}, start) }},
		"fails": {before: 2, after: 2, ends: func(_ *state.Want, v state.Volume) state.Volume {
			return Complete(v, expand, Result{Err: callError(state.Failed)}, start)
		}},
		"cannot": {before: 2, ends: func(_ *state.Want, v state.Volume) state.Volume {
			return Complete(v, expand, Result{Err: callError(state.Final)}, start)
		}},
		"infeasible by the claim": {before: 2, ends: func(w *state.Want, v state.Volume) state.Volume {
			w.NoGrow = "infeasible"
			return v
		}},
		"lowered again": {before: 2, ends: func(w *state.Want, v state.Volume) state.Volume {
			w.SizeBytes = 1
			return v
		}},
		"reads only": {before: 1, after: 1, change: func(w *state.Want, _ *Facts) {
			b := w.Pods["b"]
			b.ReadOnly = true
			w.Pods["b"] = b
		}},
		"grows later": {change: func(w *state.Want, _ *Facts) { w.SizeBytes = 1 }, ends: func(w *state.Want, v state.Volume) state.Volume {
			w.SizeBytes = 9
			return v
		}},
	} {
		w, v, f := grown(tc.change)
		if got := waiting(v); got != tc.before {
			t.Errorf("%s: %d pods wait, want %d", name, got, tc.before)
		}
		if tc.ends != nil {
			v = tc.ends(&w, v)
		}
		if v, _ = Resize(v, w, f); waiting(v) != tc.after {
			t.Errorf("%s: %d pods wait then, want %d", name, waiting(v), tc.after)
		}
		if op, _ := Next(state.Want{}, v, f, start.Add(time.Hour)); op.Kind != Unpublish {
			t.Errorf("%s: unwanted, next is %v", name, op)
		}
	}
	// A mount that is made again for a pod that uses it does not wait.
	w, v, f := grown(func(w *state.Want, _ *Facts) { w.SizeBytes = 1 })
	m := v.Mounts["a"]
	m.Fact, m.Seen = state.Fact{Phase: state.Entering}, state.Seen{Mounted: true}
	v.Mounts = withMount(v.Mounts, "a", m)
	w.SizeBytes = 9
	if v = Begin(v, Op{Kind: Publish, Pod: "a", Revision: "1"}, w, f); v.Mounts["a"].Waits {
		t.Error("a pod that had it waits for it to grow")
	}
}

// An external-resizer answers an expansion that failed on the node with a new request of the
// same size. The plan repeats the call then, but no sooner than the pause of the failure ends.
func TestAClaimThatAsksAnewEndsARefusalAndNoPause(t *testing.T) {
	expand := Op{Kind: Expand, Pod: "a", SizeBytes: 9}
	w, v, f := grown(nil)
	if again := RetryExpand(v); again.ExpandFailed != nil {
		t.Errorf("without a failure: %+v", again.ExpandFailed)
	}
	v, _ = Resize(Complete(v, expand, Result{Err: callError(state.Final)}, start), w, f)
	if op, _ := Next(w, v, f, start.Add(time.Hour)); op.Kind != None {
		t.Fatalf("refused for good: next is %v", op)
	}
	again := RetryExpand(v)
	if !v.ExpandFailed.Final {
		t.Error("RetryExpand wrote to the record that it was given")
	}
	pause := again.ExpandFailed.NotBefore
	if op, held := Next(w, again, f, pause.Add(-1)); op.Kind != None || !held.Until.Equal(pause) {
		t.Errorf("within the pause: next is %v, held %+v", op, held)
	}
	if op, _ := Next(w, again, f, pause); op.Kind != Expand {
		t.Errorf("after the pause: next is %v", op)
	}
}

// A volume that was taken over while no pod wanted it has a record without a size.
func TestASizeThatNobodyHasToldIsTheClaims(t *testing.T) {
	w, v, f := grown(nil)
	w.HaveBytes, v.SizeBytes = 3, 0
	v, changed := Resize(v, w, f)
	if op, _ := Next(w, v, f, start); v.SizeBytes != 3 || !changed || op.Kind != Expand || op.SizeBytes != 9 {
		t.Errorf("size %d, news: %v, next is %v", v.SizeBytes, changed, op)
	}
	w.HaveBytes, v.SizeBytes = 0, 0
	if v, _ := Resize(v, w, f); v.SizeBytes != 9 {
		t.Errorf("nothing is known of before: size %d", v.SizeBytes)
	}
}

// A driver that expands volumes only while no pod has them is not asked while one does. A pod
// whose mount still waits for the volume to grow does not have it yet.
//
// Items: N-98.
// Sidecars: SR-07.
func TestAVolumeGrowsUnderNoPodWhereItsDriverForbidsIt(t *testing.T) {
	w := variant{stage: true}.wants()[1]
	w.HaveBytes, w.SizeBytes = 1, 5
	pod := byUID(w.Pods)[0]
	for name, tc := range map[string]struct {
		offline, waits bool
		phase          state.Phase
		grows          bool
	}{
		"online":                   {phase: state.Present, grows: true},
		"offline, under a pod":     {offline: true, phase: state.Present},
		"offline, before a pod":    {offline: true, waits: true, phase: state.Present, grows: true},
		"offline, while one comes": {offline: true, phase: state.Entering, grows: true},
	} {
		f := Facts{Driver: DriverFacts{Up: true, Stage: true, Expand: true, Offline: tc.offline}, Synced: true}
		v := state.Volume{ID: "d^h", Spec: w.Spec, SizeBytes: 1, Mounts: map[state.PodUID]state.Mount{
			pod: {MountSpec: w.Pods[pod].MountSpec, Waits: tc.waits, Fact: state.Fact{Phase: tc.phase}},
		}}
		if got := holdOfflineGrowth(w, v, f); (got.NoGrow == "") != tc.grows {
			t.Errorf("%s: %q", name, got.NoGrow)
		}
		if v, _ := Resize(v, w, f); tc.waits && !v.Mounts[pod].Waits {
			t.Errorf("%s: the pod is let go before the volume has grown", name)
		}
	}
}
