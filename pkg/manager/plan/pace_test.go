package plan

import (
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
	for name, calls := range map[string][]call{
		"as fast as alone":  {{50 * ms, 9, true, 10}, {50 * ms, 9, true, 20}, {74 * ms, 9, true, 25}, {50 * ms, 9, true, 25}},
		"nobody waits":      {{50 * ms, 9, false, 0}, {50 * ms, 9, false, 0}},
		"slower than alone": {{50 * ms, 0, false, 0}, {75 * ms, 9, true, 0}, {74 * ms, 9, true, 10}},
		"short calls":       {{9 * ms, 9, true, 0}, {9 * ms, 9, true, 0}, {10 * ms, 9, true, 10}},
		"much slower":       {{50 * ms, 9, true, 10}, {50 * ms, 9, true, 20}, {200 * ms, 9, true, 20}, {201 * ms, 9, true, 10}, {201 * ms, 9, true, 0}, {201 * ms, 9, true, 0}},
		"slower for good":   {{50 * ms, 0, false, 0}, {100 * ms, 9, true, 0}, {100 * ms, 0, true, 0}, {100 * ms, 0, false, 0}, {100 * ms, 9, true, 10}},
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
	if p.Ended(Limits{Node: 9, Driver: 9}, time.Second, Running{Calls: 8}, true) != 0 {
		t.Error("limits without Most are not kept")
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
