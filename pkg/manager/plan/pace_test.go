package plan

import (
	"slices"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

func TestASlowDriverThatTakesNoLongerForMoreGetsMore(t *testing.T) {
	l := Limits{Node: 100, Driver: 10, Most: 35, Reserved: 1}
	ms := time.Millisecond
	type call struct {
		took    time.Duration
		others  int
		waiting bool
		want    int
	}
	like := func(n int, took time.Duration, more ...call) []call { // what is alike earns nothing at first
		return append(slices.Repeat([]call{{took, 9, true, 0}}, n), more...)
	}
	for name, calls := range map[string][]call{
		"as fast as alone":  like(8, 50*ms, call{50 * ms, 9, true, 12}, call{99 * ms, 9, true, 24}, call{50 * ms, 9, true, 25}, call{50 * ms, 9, true, 25}),
		"not in a row":      append(like(8, 50*ms, call{100 * ms, 9, true, 0}), like(8, 50*ms, call{50 * ms, 9, true, 12})...),
		"nobody waits":      slices.Repeat([]call{{50 * ms, 9, false, 0}}, 20),
		"slower than alone": append([]call{{50 * ms, 0, false, 0}}, slices.Repeat([]call{{100 * ms, 9, true, 0}}, 20)...),
		"short calls":       append(slices.Repeat([]call{{9 * ms, 9, true, 0}}, 20), like(8, 10*ms, call{10 * ms, 9, true, 12})...),
		"slower by now":     like(8, 50*ms, call{50 * ms, 9, true, 12}, call{50 * ms, 9, true, 24}, call{100 * ms, 9, true, 12}, call{100 * ms, 9, true, 0}, call{100 * ms, 9, true, 0}),
		"slower for good": append([]call{{50 * ms, 0, false, 0}, {100 * ms, 9, true, 0}, {100 * ms, 0, true, 0}, {100 * ms, 0, false, 0}},
			like(8, 100*ms, call{100 * ms, 9, true, 12})...),
	} {
		t.Run(name, func(t *testing.T) {
			var p Pace
			more := 0
			for i, c := range calls {
				if more = p.Ended(l, c.took, Running{Calls: c.others, More: more}, c.waiting); more != c.want {
					t.Fatalf("after call %d: %d more, want %d", i, more, c.want)
				}
			}
		})
	}
	var p Pace
	for range 20 {
		if p.Ended(Limits{Node: 9, Driver: 9}, time.Second, Running{Calls: 8}, true) != 0 {
			t.Fatal("limits without Most are not kept")
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
		// Fewer than the limit says, down to one, and one that removes.
		{Running{More: -3}, Stage, true},
		{Running{Calls: 1, Making: 1, More: -3}, Stage, false},
		{Running{Calls: 1, Making: 1, More: -3}, Unstage, true},
		{Running{Calls: 2, Making: 1, More: -3}, Unstage, false},
		{Running{Calls: 1, More: -3}, Unstage, false},
		{Running{Calls: 1, More: -3}, Stage, false},
		{Running{Calls: 1, Making: 1, More: -2}, Stage, false},
		// What takes long holds nobody up, up to the limit.
		{Running{Calls: 1, Making: 1, More: -3, Slow: 1, SlowMaking: 1}, Stage, true},
		{Running{Calls: 2, Making: 2, More: -3, Slow: 1, SlowMaking: 1}, Stage, false},
		{Running{Calls: 3, Making: 3, More: -3, Slow: 3, SlowMaking: 3}, Stage, false},
		{Running{Calls: 3, Making: 3, More: -3, Slow: 3, SlowMaking: 3}, Unstage, true},
		{Running{Calls: 4, Making: 3, More: -3, Slow: 4, SlowMaking: 3}, Unstage, false},
		{Running{Calls: 3, Making: 3, Slow: 3, SlowMaking: 3}, Stage, false},
	} {
		if got := l.Admit(Running{}, c.running, c.kind); got != c.want {
			t.Errorf("%+v, %v: got %v", c.running, c.kind, got)
		}
	}
}

// A driver that has too much to do gets half of what it had, and one more with
// every call that succeeds, up to the limit.
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
	for range 15 { // those that were in flight then
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
		if r.More = p.Ended(l, time.Second, r, true); l.Driver+r.More != want {
			t.Fatalf("after a success: %d slots, want %d", l.Driver+r.More, want)
		}
	}
	fails("a", "Unavailable", 8)
	r.More = 24
	p = Pace{}
	fails("a", "Unavailable", 20) // half of what it had earned, too
	p, r.Calls = Pace{known: 1}, 3
	if r.More = p.Ended(l, time.Second, r, false); r.More != 4 {
		t.Errorf("a success among those that were in flight: %d", r.More)
	}
	fails("a", "Unavailable", 10)
}
