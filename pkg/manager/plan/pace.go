package plan

import "time"

const (
	// slowCall is when a call is slow enough for more of them at once to gain
	// anything: with calls shorter than this even DefaultLimits' 64 at a time are
	// 6,400 a second.
	slowCall = 10 * time.Millisecond
	// likeAlone is how many calls in a row have to take about as long as one
	// alone does, before more of them earn slots: those of a driver that works
	// fast on a busy machine differ, and soon one takes much longer.
	likeAlone = 8
	// slotsPerCall is how many slots each of them earns then. A first wave of 64
	// makes room for 500.
	slotsPerCall = 12
)

// Pace is what the calls of a driver tell of how many it can do at once. A
// driver that waits, for a cloud say, takes no longer for a hundred calls than
// for one; one that works, or takes a lock, does.
type Pace struct {
	// best is the shortest call. One that had the driver for itself replaces it:
	// the driver may have become slower. Those of a crowd say nothing of that.
	best time.Duration
	// alike counts the calls since one took twice that or longer.
	alike int
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
	case took >= 2*p.best:
		p.alike = 0
		more -= slotsPerCall
	case waiting && took >= slowCall:
		if p.alike++; p.alike > likeAlone {
			more += slotsPerCall
		}
	}
	return max(0, min(more, l.Most-l.Driver))
}
