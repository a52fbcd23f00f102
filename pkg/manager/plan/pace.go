package plan

import "time"

const (
	// slowCall is when a call is slow enough for more of them at once to gain
	// anything: with calls shorter than this even DefaultLimits' 64 at a time are
	// 6,400 a second.
	slowCall = 10 * time.Millisecond
	// slotsPerCall is how many slots a call earns that took no longer than one
	// alone does. A first wave of 64 then makes room for all that a node can hold.
	slotsPerCall = 10
)

// Pace is what the calls of a driver tell of how many it can do at once. A
// driver that waits, for a cloud say, takes no longer for a hundred calls than
// for one; one that works, or takes a lock, does.
type Pace struct {
	// best is the shortest call. One that had the driver for itself replaces it:
	// the driver may have become slower. Those of a crowd say nothing of that.
	best time.Duration
}

// Ended takes in a call that the driver answered with OK, and returns how many
// slots it has now beyond Limits.Driver. r is what else it has in flight;
// waiting says that other calls wait for a slot.
func (p *Pace) Ended(l Limits, took time.Duration, r Running, waiting bool) int {
	if p.best == 0 || took < p.best || r.Calls == 0 && !waiting {
		p.best = took
	}
	more := r.More
	switch {
	case took > 4*p.best:
		more -= slotsPerCall
	case waiting && took >= slowCall && took < p.best*3/2:
		more += slotsPerCall
	}
	return max(0, min(more, l.Most-l.Driver))
}
