package plan

import (
	"slices"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

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
	// known counts the calls that were in flight when the driver was last given
	// fewer, of which nothing new is to be learnt; by is whose failure it was.
	known int
	by    state.VolumeID
}

// overload are the codes by which a driver, or the want of its answer, says that
// it has too much to do.
var overload = []string{"ResourceExhausted", "Unavailable", "DeadlineExceeded"}

// Failed takes in a call for volume id that ended with a code, and returns as
// Ended does. A driver that has too much to do gets half of the slots that it
// had, once for all calls that were in flight then, and one at least. A volume
// that fails again and again says nothing of the driver.
func (p *Pace) Failed(l Limits, id state.VolumeID, code string, r Running) int {
	switch {
	case p.known > 0:
		p.known--
	case slices.Contains(overload, code) && id != p.by:
		p.by, p.known, p.alike = id, r.Calls, 0
		return max(1, (l.Driver+r.More)/2) - l.Driver
	}
	return r.More
}

// Ended takes in a call that the driver answered with OK, and returns how many
// slots it has now beyond Limits.Driver: one more where it had fewer. r is what else it has in flight;
// waiting says that other calls wait for a slot.
func (p *Pace) Ended(l Limits, took time.Duration, r Running, waiting bool) int {
	if p.best == 0 || took < p.best || r.Calls == 0 && !waiting {
		p.best = took
	}
	p.by, p.known = "", max(0, p.known-1)
	more := r.More
	switch {
	case more < 0:
		return more + 1
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
