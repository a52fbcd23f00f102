package plan

import (
	"fmt"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// published returns a volume that pod a has, and the wish for exactly that.
func published(r state.Renewal) (state.Want, state.Volume, Facts) {
	spec := state.Spec{Driver: "d", Handle: "h"}
	m := mountSpec("a", false)
	m.Renewal = r
	w := state.Want{Spec: new(spec), Pods: map[state.PodUID]state.WantMount{"a": {MountSpec: m}}}
	v := state.Volume{ID: "d^h", Spec: new(spec), Mounts: map[state.PodUID]state.Mount{"a": {Fact: state.Fact{Phase: state.Entering}, MountSpec: m}}}
	return w, v, Facts{Synced: true, Driver: DriverFacts{Up: true}}
}

var publishA, republishA = Op{Kind: Publish, Pod: "a"}, Op{Kind: Republish, Pod: "a"}

// Items: F10.
func TestADriverThatWantsItIsCalledAgainFromTimeToTime(t *testing.T) {
	w, v, f := published(state.Renewal{Republish: true})
	v = Complete(v, publishA, Result{}, start)
	at := v.Mounts["a"].RenewAt
	if wait := at.Sub(start); wait < time.Minute || wait > 90*time.Second {
		t.Fatalf("called again after %v", wait)
	}
	if op, held := Next(w, v, f, at.Add(-1)); op != (Op{}) || held != (Held{Until: at}) {
		t.Errorf("before its time: %v, %+v", op, held)
	}
	op, _ := Next(w, v, f, at)
	if op != republishA {
		t.Errorf("at its time: %v", op)
	}
	v = Complete(Begin(v, op, w, f), op, Result{}, at)
	if next := v.Mounts["a"].RenewAt.Sub(at); next < time.Minute || next > 90*time.Second {
		t.Errorf("then after %v", next)
	}
}

// TestARenewalWaitsAsSoonAsItsDriverIsAway: while the driver is down, the status says that the
// mount's content will expire, even before the renewal is due.
func TestARenewalWaitsAsSoonAsItsDriverIsAway(t *testing.T) {
	for name, renewAt := range map[string]time.Time{"a token ends": start.Add(40 * time.Minute), "the driver wants calls": {}, "nothing ends": {}} {
		w, v, f := published(state.Renewal{Republish: name == "the driver wants calls"})
		v = Complete(v, publishA, Result{RenewAt: renewAt}, start)
		at := v.Mounts["a"].RenewAt
		f.Driver.Up, f.Driver.Why = false, "it is away"
		want := Held{Step: Republish, Pod: "a", Code: DriverDown, Reason: "it is away", Until: at}
		if at.IsZero() {
			want = Held{}
		}
		if op, held := Next(w, v, f, start); op != (Op{}) || held != want {
			t.Errorf("%s: %v, %+v; want %+v", name, op, held, want)
		}
		f.Driver.Up = true
		if op, held := Next(w, v, f, start); op != (Op{}) || held != (Held{Until: at}) {
			t.Errorf("%s, and it is back: %v, %+v", name, op, held)
		}
	}
}

func TestWhatEndsIsRenewedInTimeAndTheRestNever(t *testing.T) {
	w, v, f := published(state.Renewal{})
	for name, tc := range map[string]struct {
		republish bool
		ends      time.Duration
		within    time.Duration
	}{
		"nothing ends":                        {},
		"a token":                             {ends: 40 * time.Minute, within: 40 * time.Minute},
		"a token, and the driver wants calls": {republish: true, ends: 40 * time.Minute, within: 90 * time.Second},
		"a short token":                       {republish: true, ends: 30 * time.Second, within: 30 * time.Second},
	} {
		m := v.Mounts["a"]
		m.Renewal.Republish = tc.republish
		var ends time.Time
		if tc.ends > 0 {
			ends = start.Add(tc.ends)
		}
		got := Complete(state.Volume{ID: v.ID, Spec: v.Spec, Mounts: map[state.PodUID]state.Mount{"a": m}}, publishA, Result{RenewAt: ends}, start)
		at := got.Mounts["a"].RenewAt
		if tc.within == 0 {
			if _, held := Next(w, got, f, start.Add(1000*time.Hour)); !at.IsZero() || held != (Held{}) {
				t.Errorf("%s: renewed at %v, held %+v", name, at, held)
			}
			continue
		}
		if at.After(start.Add(tc.within)) || !at.After(start) {
			t.Errorf("%s: renewed after %v, want within %v", name, at.Sub(start), tc.within)
		}
	}
}

// A clock that was set back by an hour or a year makes no renewal late, a small correction makes
// none early, and a clock that was set forward is like the passing of time.
//
// Faults: A065.
func TestAClockThatIsPutBackDelaysNoRenewal(t *testing.T) {
	for back, early := range map[time.Duration]bool{0: false, time.Second: false, time.Hour: true, 9000 * time.Hour: true} {
		for name, of := range map[string]struct {
			republish Op
			renewal   state.Renewal
			ends      time.Time
		}{
			"the driver wants calls": {republishA, state.Renewal{Republish: true}, time.Time{}},
			"a content with a token": {Op{Kind: Republish, Pod: "a", Revision: "r"}, state.Renewal{}, start.Add(time.Hour)},
		} {
			w, v, f := published(of.renewal)
			wm := w.Pods["a"]
			wm.Revision = of.republish.Revision
			w.Pods["a"] = wm
			v = Complete(v, Op{Kind: Publish, Pod: "a", Revision: wm.Revision}, Result{RenewAt: of.ends}, start)
			op, _ := Next(w, v, f, start.Add(-back))
			if want := map[bool]Op{true: of.republish}[early]; op != want {
				t.Errorf("%s, %v back: %v, want %v", name, back, op, want)
			}
		}
	}
}

// TestAFailedRenewalTakesNothingAway: it is paced, it stays due, and the mount stays present,
// whatever the failure is.
//
// Items: C11, C28.
func TestAFailedRenewalTakesNothingAway(t *testing.T) {
	for _, outcome := range []state.Outcome{state.Failed, state.Uncertain, state.Refused, state.Final} {
		w, v, f := published(state.Renewal{Republish: true})
		v = Complete(v, publishA, Result{}, start)
		at := v.Mounts["a"].RenewAt
		v = Complete(Begin(v, republishA, w, f), republishA, Result{Err: callError(outcome)}, at)
		m := v.Mounts["a"]
		if m.Phase != state.Present || m.Retry().Attempts != 1 || !m.RenewAt.Equal(at) {
			t.Errorf("%v: %+v", outcome, m)
		}
		op, held := Next(w, v, f, at)
		if op != (Op{}) || held.Step != Republish {
			t.Errorf("%v: %v, %+v; want a pause", outcome, op, held)
		}
		if op, _ := Next(w, v, f, at.Add(time.Hour)); outcome != state.Final && op != republishA {
			t.Errorf("%v: later %v", outcome, op)
		}
		if op, _ := Next(state.Want{}, v, f, at); op != (Op{Kind: Unpublish, Pod: "a"}) {
			t.Errorf("%v: when the pod is gone: %v", outcome, op)
		}
	}
}

// TestWhatADriverWantsAnewCountsFromTheNextCall: this holds for tokens and for requiresRepublish,
// and for the pod's names only if the driver is called again anyway.
//
// Items: F04.
func TestWhatADriverWantsAnewCountsFromTheNextCall(t *testing.T) {
	w, v, f := published(state.Renewal{})
	v = Complete(v, publishA, Result{}, start)
	wm := w.Pods["a"]
	wm.Renewal = state.Renewal{Republish: true, Tokens: []state.TokenRequest{{Audience: "vault"}}}
	wm.Context = map[string]string{"pod.name": "a"}
	w.Pods["a"] = wm
	op, _ := Next(w, v, f, start)
	if op != republishA {
		t.Fatalf("a driver that begins to want calls gets %v", op)
	}
	if m := Begin(v, op, w, f).Mounts["a"]; len(m.Renewal.Tokens) != 1 || m.Context["pod.name"] != "a" {
		t.Errorf("the call says %+v", m)
	}
	wm.Renewal.Republish = false
	w.Pods["a"] = wm
	if m := Begin(v, op, w, f).Mounts["a"]; len(m.Renewal.Tokens) != 1 || m.Context != nil {
		t.Errorf("a call that no operator asked to repeat says %+v", m)
	}
}

func TestRenewalsOfManyVolumesAreSpread(t *testing.T) {
	seen := map[time.Time]bool{}
	_, v, _ := published(state.Renewal{Republish: true})
	for i := range 1000 {
		v.ID = state.VolumeID(fmt.Sprint("d^", i))
		seen[Complete(v, publishA, Result{}, start).Mounts["a"].RenewAt] = true
	}
	if len(seen) < 300 {
		t.Errorf("1000 volumes are renewed at %d moments", len(seen))
	}
}
