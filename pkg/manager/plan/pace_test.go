package plan

import (
	"slices"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// paceCall is a call that ended, and the slots beyond the limit after it.
type paceCall struct {
	began, took time.Duration
	with        int
	others      int // still in flight
	want        int
}

// cohort returns n calls that began at one moment, each with more in flight than the last.
func cohort(n int, began, took time.Duration, with, want int) (calls []paceCall) {
	for i := range n {
		calls = append(calls, paceCall{began, took, with + i, 9, want})
	}
	return calls
}

func TestWhatCallsTellOfHowManyADriverCanDo(t *testing.T) {
	l := Limits{Node: 100, Driver: 10, Most: 35, First: 2, Reserved: 1}
	const ms = time.Millisecond
	few := cohort(2, 0, 50*ms, 1, 0)
	crowds := func(n int, took time.Duration) (calls []paceCall) { // they say nothing yet
		for i := range n {
			calls = append(calls, cohort(2, time.Duration(i+1)*5*ms, took, 3, 0)...)
		}
		return calls
	}
	all := cohort(1, 20*ms, 50*ms, 9, 25)
	for name, calls := range map[string][][]paceCall{
		"as long as few":                     {few, crowds(3, 50*ms), all},
		"half as long again":                 {few, crowds(3, 75*ms), cohort(1, 20*ms, 75*ms, 9, 25)},
		"longer":                             {few, crowds(9, 76*ms)},
		"all of one moment":                  {few, cohort(50, 5*ms, 50*ms, 3, 0)},
		"of a few moments":                   {few, crowds(3, 50*ms), cohort(50, 16*ms, 50*ms, 3, 0)},
		"no crowd":                           {cohort(2, 0, 50*ms, 1, 0), cohort(2, 5*ms, 50*ms, 1, 0), cohort(2, 10*ms, 50*ms, 1, 0), cohort(2, 15*ms, 50*ms, 1, 0), cohort(2, 20*ms, 50*ms, 1, 0)},
		"a crowd from the first on":          {crowds(9, 50*ms)},
		"one took longer":                    {few, crowds(3, 50*ms), cohort(1, 20*ms, 90*ms, 9, 0), cohort(1, 25*ms, 50*ms, 9, 0)},
		"one of a moment that told was late": {few, crowds(3, 50*ms), cohort(1, 15*ms, 500*ms, 9, 0), all},
		"one was short":                      {few, crowds(3, 50*ms), cohort(1, 15*ms, 30*ms, 9, 0), cohort(1, 20*ms, 50*ms, 9, 0)},
		"short calls":                        {cohort(2, 0, 24*ms, 1, 0), crowds(9, 24*ms)},
		"slow enough":                        {cohort(2, 0, 25*ms, 1, 0), crowds(3, 25*ms), cohort(1, 20*ms, 25*ms, 9, 25)},
		"a crowd that does not pay":          {few, crowds(3, 50*ms), all, cohort(7, 30*ms, 100*ms, 20, 25), cohort(1, 30*ms, 100*ms, 20, 0)},
		"a large one that pays":              {few, crowds(3, 50*ms), all, cohort(50, 30*ms, 299*ms, 60, 25)},
		"a large one that does not":          {few, crowds(3, 50*ms), all, cohort(7, 30*ms, 300*ms, 60, 25), cohort(1, 30*ms, 300*ms, 60, 0)},
		"not in a row":                       {few, crowds(3, 50*ms), all, cohort(7, 30*ms, 100*ms, 20, 25), cohort(1, 30*ms, 99*ms, 20, 25), cohort(7, 30*ms, 100*ms, 20, 25)},
		"the next burst may try again": {
			few, crowds(3, 50*ms), all, cohort(7, 30*ms, 100*ms, 20, 25), cohort(1, 30*ms, 100*ms, 20, 0),
			cohort(1, 40*ms, 50*ms, 9, 0), cohort(1, 45*ms, 50*ms, 9, 0), cohort(1, 50*ms, 50*ms, 9, 0), cohort(1, 55*ms, 50*ms, 9, 0),
			{{60 * ms, 50 * ms, 9, 0, 0}},
			cohort(1, 65*ms, 50*ms, 9, 25),
		},
	} {
		t.Run(name, func(t *testing.T) {
			var p Pace
			more := 0
			for i, c := range slices.Concat(calls...) {
				ended := Call{Kind: Stage, With: c.with, Began: time.Unix(1, 0).Add(c.began), Took: c.took}
				more = p.Ended(l, ended, Running{Calls: c.others, More: more}, c.others > 0)
				if more != c.want {
					t.Fatalf("after call %d: %d more, want %d", i, more, c.want)
				}
			}
		})
	}
}

// A kind of call is compared with itself: Publish may return at once while Stage waits for a
// cloud.
func TestEachKindOfCallHasItsOwnTime(t *testing.T) {
	l := Limits{Node: 100, Driver: 10, Most: 35, First: 2}
	var p Pace
	more := 0
	end := func(k Kind, with int, began, took time.Duration) {
		ended := Call{Kind: k, With: with, Began: time.Unix(1, 0).Add(began), Took: took}
		more = p.Ended(l, ended, Running{Calls: 9, More: more}, true)
	}
	end(Publish, 1, 0, time.Millisecond)
	end(Stage, 2, 0, time.Second)
	for i := range time.Duration(4) {
		end(Publish, 9, i*FirstWait, 3*time.Millisecond)
		end(Stage, 9, i*FirstWait, time.Second)
	}
	if more != 25 || !p.Fast(Publish) || p.Fast(Stage) || p.Fast(Unstage) {
		t.Errorf("%d more, %+v", more, p)
	}
	for range 2 * serialCalls { // short calls cost no driver its extra slots
		end(Publish, 9, time.Second, 20*time.Millisecond)
	}
	if more != 25 {
		t.Errorf("after short calls %d more", more)
	}
}

// That a driver has become slower is learnt gradually, from calls that it had alone.
func TestACallAloneTellsThatADriverHasBecomeSlower(t *testing.T) {
	var p Pace
	alone := func(took time.Duration, others int, waiting bool) {
		p.Ended(DefaultLimits(), Call{Kind: Stage, With: 1, Took: took}, Running{Calls: others}, waiting)
	}
	alone(time.Millisecond, 0, false)
	for range 9 {
		alone(time.Second, 1, false)
		alone(time.Second, 0, true)
	}
	alone(100*time.Millisecond, 0, false)
	if !p.Fast(Stage) {
		t.Error("one late call makes a driver slow")
	}
	for range 9 {
		alone(100*time.Millisecond, 0, false)
	}
	if p.Fast(Stage) {
		t.Error("a driver that has become slow counts as fast")
	}
	alone(time.Millisecond, 5, true)
	if !p.Fast(Stage) {
		t.Error("a short call does not count")
	}
}

func TestLimitsWithoutMostAndFirstAreKept(t *testing.T) {
	var p Pace
	l := Limits{Node: 9, Driver: 9}
	for i := range time.Duration(20) {
		c := Call{Kind: Stage, With: int(1 + i%9), Began: time.Unix(1, 0).Add(i * FirstWait), Took: time.Second}
		if p.Ended(l, c, Running{Calls: 8}, true) != 0 {
			t.Fatal("limits without Most are not kept")
		}
	}
	l = DefaultLimits()
	first := l.First
	for _, want := range []int{16, 24, 32, 40, 48, 56, 0} {
		if first = l.Widen(first); first != want {
			t.Errorf("widened to %d, want %d", first, want)
		}
	}
}

func TestAdmitCountsTheSlotsThatADriverEarned(t *testing.T) {
	l := Limits{Node: 10, Driver: 4, Reserved: 1}
	for _, c := range []struct {
		running Running
		kind    Kind
		want    bool
	}{
		{Running{Calls: 3, Making: 3}, Stage, false},
		{Running{Calls: 3, Making: 3, More: 1}, Stage, true},
		{Running{Calls: 4, Making: 4, More: 1}, Stage, false},
		{Running{Calls: 4, Making: 4, More: 1}, Unstage, true},
		{Running{Calls: 5, Making: 4, More: 1}, Unstage, false},
		// A lowered limit, down to one call, and one removal.
		{Running{More: -3}, Stage, true},
		{Running{Calls: 1, Making: 1, More: -3}, Stage, false},
		{Running{Calls: 1, Making: 1, More: -3}, Unstage, true},
		{Running{Calls: 2, Making: 1, More: -3}, Unstage, false},
		{Running{Calls: 1, More: -3}, Unstage, false},
		{Running{Calls: 1, More: -3}, Stage, false},
		{Running{Calls: 1, Making: 1, More: -2}, Stage, false},
		// Slow calls delay no other call, up to the limit.
		{Running{Calls: 1, Making: 1, More: -3, Slow: 1, SlowMaking: 1}, Stage, true},
		{Running{Calls: 2, Making: 2, More: -3, Slow: 1, SlowMaking: 1}, Stage, false},
		{Running{Calls: 3, Making: 3, More: -3, Slow: 3, SlowMaking: 3}, Stage, false},
		{Running{Calls: 3, Making: 3, More: -3, Slow: 3, SlowMaking: 3}, Unstage, true},
		{Running{Calls: 4, Making: 3, More: -3, Slow: 4, SlowMaking: 3}, Unstage, false},
		{Running{Calls: 3, Making: 3, Slow: 3, SlowMaking: 3}, Stage, false},
		// The beginning of a burst.
		{Running{Calls: 1, Making: 1, First: 2}, Stage, true},
		{Running{Calls: 2, Making: 1, First: 2}, Stage, false},
		{Running{Calls: 2, Making: 1, First: 2}, Unstage, false},
		{Running{Calls: 2, Making: 1, More: 5, First: 2}, Stage, false},
	} {
		if got := l.Admit(Running{}, c.running, c.kind); got != c.want {
			t.Errorf("%+v, %v: got %v", c.running, c.kind, got)
		}
	}
}

// An overloaded driver keeps half of its slots, and gets one more with every call that succeeds,
// up to the limit.
func TestADriverThatHasTooMuchToDoGetsLess(t *testing.T) {
	l := Limits{Node: 100, Driver: 16, Most: 40, Reserved: 2}
	var p Pace
	r := Running{Calls: 15}
	fails := func(id state.VolumeID, code string, want int) {
		t.Helper()
		if r.More = p.Failed(l, id, code, r); l.Driver+r.More != want {
			t.Fatalf("%s of %s: %d slots, want %d", code, id, l.Driver+r.More, want)
		}
	}
	for _, code := range []string{"Internal", "Aborted", "", "InvalidArgument"} {
		fails("a", code, 16)
	}
	fails("a", "ResourceExhausted", 8)
	for range 15 { // the calls that were in flight at that moment
		fails("b", "ResourceExhausted", 8)
	}
	r.Calls = 0
	fails("a", "Unavailable", 8) // the same volume again
	fails("b", "DeadlineExceeded", 4)
	fails("b", "DeadlineExceeded", 4)
	for _, want := range []int{2, 1, 1, 1} {
		fails(state.VolumeID(rune('c'+want)), "Unavailable", want)
		fails("other", "Unavailable", max(1, want/2))
		r.More = want - l.Driver
	}
	for want := 2; want <= 16; want++ {
		if r.More = p.Ended(l, Call{Kind: Stage, Took: time.Second}, r, true); l.Driver+r.More != want {
			t.Fatalf("after a success: %d slots, want %d", l.Driver+r.More, want)
		}
	}
	fails("a", "Unavailable", 8)
	r.More = 24
	p = Pace{}
	fails("a", "Unavailable", 20) // half of its extra slots, too
	p, r.Calls = Pace{stale: 1}, 3
	if r.More = p.Ended(l, Call{Kind: Stage, Took: time.Second}, r, false); r.More != 4 {
		t.Errorf("a success among those that were in flight: %d", r.More)
	}
	fails("a", "Unavailable", 10)
}
