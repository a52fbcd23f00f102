package plan

import (
	"slices"
	"testing"
	"time"
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
	} {
		if got := l.Admit(Running{}, c.running, c.kind); got != c.want {
			t.Errorf("%+v, %v: got %v", c.running, c.kind, got)
		}
	}
}
