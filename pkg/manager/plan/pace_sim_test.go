package plan

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// simStep is the resolution of a paceSim.
const simStep = 100 * time.Microsecond

// paceSim simulates a burst of volumes that are staged and published. The driver computes for a
// while, on one of its processors or sharing them among all calls, and then waits. On a busy
// machine the driver and the manager each stand still now and then, while others have the
// processors. The simulation uses no clock and is deterministic.
type paceSim struct {
	work, wait time.Duration
	processors int
	shares     bool          // all calls share the processors; else one call runs after the other
	stall      time.Duration // the longest time for which driver or manager stand still; 0 is never
	volumes    int
	hung       int // number of volumes whose first call never ends

	now      time.Duration
	rng      *rand.Rand
	running  Running
	pace     Pace
	widenAt  time.Duration
	todo     [2]int // volumes to stage, to publish
	inFlight []*simCall
	answered []*simCall
	still    [2]time.Duration // until when the driver and the manager stand still
	goes     [2]time.Duration // until when they run
	most     []time.Duration  // by number of calls: when so many were first in flight, since the burst began
	began    time.Duration
}

type simCall struct {
	Call
	began, left, until time.Duration // left is work; until is when its wait is over
}

func (s *paceSim) stands(who int) bool {
	if s.stall == 0 || s.now < s.goes[who] {
		return false
	}
	if s.still[who] <= s.goes[who] {
		s.still[who] = s.now + time.Duration(s.rng.Int64N(int64(s.stall)))
	}
	if s.now < s.still[who] {
		return true
	}
	s.goes[who] = s.now + 3*time.Millisecond
	s.still[who] = 0
	return false
}

func (s *paceSim) drive() {
	work := time.Duration(s.processors) * simStep
	busy := 0
	for _, c := range s.inFlight {
		if c.left > 0 {
			busy++
		}
	}
	kept := s.inFlight[:0]
	for _, c := range s.inFlight {
		if c.left > 0 && work > 0 {
			part := min(c.left, simStep, work)
			if s.shares {
				part = min(c.left, simStep, max(1, time.Duration(s.processors)*simStep/time.Duration(busy)))
			} else {
				work -= part
			}
			if c.left -= part; c.left == 0 {
				c.until = s.now + s.wait
			}
		}
		if c.left == 0 && s.now >= c.until {
			s.answered = append(s.answered, c)
			continue
		}
		kept = append(kept, c)
	}
	s.inFlight = kept
}

// manage simulates a round of the loop.
func (s *paceSim) manage(l Limits) {
	if s.running.First > 0 && s.now >= s.widenAt {
		s.running.First, s.widenAt = l.Widen(s.running.First), s.now+FirstWait
	}
	for _, c := range s.answered {
		s.running.Calls--
		s.running.Making--
		if c.Kind == Stage {
			s.todo[1]++
		}
		c.Took = s.now - c.began
		c.Began = time.Unix(0, 0).Add(c.began)
		s.running.More = s.pace.Ended(l, c.Call, s.running, s.todo[0]+s.todo[1] > 0)
		if s.pace.Fast(c.Kind) {
			s.running.First = 0
		}
	}
	s.answered = nil
	for {
		i, k := 1, Publish
		if s.todo[1] == 0 {
			i, k = 0, Stage
		}
		if s.todo[i] == 0 || !l.Admit(s.running, s.running, k) {
			return
		}
		if s.running.Calls == 0 && s.running.More <= 0 && !s.pace.Fast(k) {
			s.running.First, s.widenAt = l.First, s.now+FirstWait
		}
		s.todo[i]--
		s.running.Calls++
		s.running.Making++
		c := &simCall{Call: Call{Kind: k, With: s.running.Calls}, began: s.now, left: max(s.work, 1)}
		if s.volumes-s.todo[0] > s.hung || k == Publish {
			s.inFlight = append(s.inFlight, c)
		}
		for s.running.Calls > len(s.most) {
			s.most = append(s.most, s.now-s.began)
		}
	}
}

// burst runs until all volumes but those that hang are done, and returns how long that took.
func (s *paceSim) burst(t *testing.T) time.Duration {
	s.todo, s.most, s.began = [2]int{s.volumes}, nil, s.now
	for ; s.running.Calls+s.todo[0]+s.todo[1] > s.hung; s.now += simStep {
		if s.now > s.began+time.Hour {
			t.Fatalf("%d volumes still to be staged, %d to be published, %d calls in flight", s.todo[0], s.todo[1], s.running.Calls)
		}
		if !s.stands(0) {
			s.drive()
		}
		if !s.stands(1) {
			s.manage(DefaultLimits())
		}
	}
	return s.now - s.began
}

// A driver that computes gets no more calls than the limit, however busy the machine is, and
// although its first calls come in a burst.
func TestADriverThatWorksGetsNoMoreThanTheLimit(t *testing.T) {
	const ms = time.Millisecond
	for name, driver := range map[string]paceSim{
		"one call after the other":    {work: ms / 5, processors: 1},
		"two at once":                 {work: 3 * ms / 10, processors: 2},
		"all at once":                 {work: 3 * ms / 10, processors: 2, shares: true},
		"slow":                        {work: 2 * ms, processors: 2},
		"slow, under a lock":          {work: 30 * ms, processors: 1},
		"waits a little":              {work: 3 * ms / 10, processors: 2, wait: 2 * ms},
		"fast, and some volumes hang": {work: 3 * ms / 10, processors: 2, hung: 50},
	} {
		for _, stall := range []time.Duration{0, 5 * ms, 20 * ms, 50 * ms} {
			if driver.wait > 0 && stall > 5*ms {
				continue // it mostly waits; one burst in a hundred gets more for a while
			}
			t.Run(fmt.Sprint(name, ", stalls of ", stall), func(t *testing.T) {
				for seed := range uint64(3) {
					s := driver
					s.volumes, s.stall, s.rng = 300, stall, rand.New(rand.NewPCG(seed, 1))
					s.burst(t)
					if limit := DefaultLimits().Driver; len(s.most) > limit || s.running.More != 0 {
						t.Errorf("seed %d: %d calls at once, limit %d and %d more", seed, len(s.most), limit, s.running.More)
					}
				}
			})
		}
	}
}

// A driver that waits has 550 calls in flight before its second wave is over, or soon after on a
// busy machine.
func TestADriverThatWaitsGetsMore(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		work, wait, stall, within time.Duration
	}{
		{0, 30 * ms, 0, 60 * ms},
		{0, 50 * ms, 0, 75 * ms},
		{ms / 10, 50 * ms, 0, 75 * ms},
		{ms / 10, 50 * ms, 5 * ms, 100 * ms},
		{0, 50 * ms, 20 * ms, 500 * ms},
		{0, 500 * ms, 0, 550 * ms},
		{0, 500 * ms, 50 * ms, 1500 * ms},
	} {
		t.Run(fmt.Sprintf("works %v, waits %v, stalls of %v", c.work, c.wait, c.stall), func(t *testing.T) {
			for seed := range uint64(3) {
				s := paceSim{work: c.work, wait: c.wait, processors: 2, stall: c.stall, volumes: 1000, rng: rand.New(rand.NewPCG(seed, 1))}
				s.burst(t)
				if len(s.most) < 550 {
					t.Fatalf("seed %d: %d calls at once", seed, len(s.most))
				}
				if at := s.most[549]; at > c.within {
					t.Errorf("seed %d: 550 calls at once after %v", seed, at)
				}
				// And the next burst begins with them.
				s.burst(t)
				if len(s.most) < 900 || c.stall == 0 && s.most[899] > 0 {
					t.Errorf("seed %d: %d calls at once in the next burst", seed, len(s.most))
				}
			}
		})
	}
}

// A driver loses its extra slots when a crowd is no longer worthwhile, and also if its calls took
// equally long by chance, or because they all end together.
func TestACrowdThatDoesNotPayIsTakenBack(t *testing.T) {
	const ms = time.Millisecond
	s := paceSim{wait: 50 * ms, processors: 2, volumes: 1000}
	s.burst(t)
	if s.running.More == 0 {
		t.Fatal("a driver that waits got no more")
	}
	s.wait, s.work, s.volumes = 0, 5*ms, 3000
	s.burst(t)
	if s.running.More != 0 {
		t.Errorf("a driver that works again: %d more", s.running.More)
	}
	s.burst(t)
	if limit := DefaultLimits().Driver; len(s.most) > limit {
		t.Errorf("in the next burst %d calls at once, limit %d", len(s.most), limit)
	}
	s = paceSim{work: 10 * ms, processors: 2, shares: true, volumes: 2000}
	s.burst(t)
	if s.running.More != 0 {
		t.Errorf("a driver whose calls all end together: %d more", s.running.More)
	}
}

// Calls that hang delay no other volume, neither at the beginning of a burst, when few calls are
// allowed, nor with a driver whose other calls are fast.
func TestVolumesThatHangFromTheFirstOnHoldNobodyUp(t *testing.T) {
	const ms = time.Millisecond
	for _, wait := range []time.Duration{0, ms, 50 * ms} {
		s := paceSim{work: ms / 10, wait: wait, processors: 2, volumes: 100, hung: 50}
		if took, most := s.burst(t), 50*ms+20*(wait+2*ms); took > most {
			t.Errorf("with calls of %v the others were done after %v, want %v", wait, took, most)
		}
	}
}
