package plan

import (
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const (
	// slowCall is when a call is slow enough for more of them at once to gain
	// anything: with calls shorter than this even DefaultLimits' 64 at a time are
	// 2,560 a second, more than this process makes on two processors.
	slowCall = 25 * time.Millisecond
	// alike is how many moments in a row have to tell that a crowd takes no longer
	// than few calls do: on a busy machine one wave may, by chance.
	alike = 4
	// FirstWait is how long after its first calls, Limits.First of them, a driver
	// that is not known to be fast gets as many again, and so on up to
	// Limits.Driver; and how far apart moments are.
	FirstWait = 5 * time.Millisecond
	// unlike is how many calls in a row tell that a crowd does not pay.
	unlike = 8
	// drift is the part of the difference that a longer time of a call alone counts
	// for: it may be the machine that was busy.
	drift = 8
)

// Call is what a call that ended tells of its driver: how many were in flight
// when it began, with it, and how long it took.
type Call struct {
	Kind  Kind
	With  int
	Began time.Time
	Took  time.Duration
}

// Pace is what the calls of a driver tell of how many it can do at once. A
// driver that waits, for a cloud say, takes no longer for a hundred calls than
// for one; one that works, or takes a lock, does. What a crowd takes tells
// nothing by itself, the less on a busy machine, where all that is begun at one
// moment is seen to end at another: it is compared with the shortest call, and
// that at several moments. So the first calls of a burst are not begun all at one.
// With 64 calls at a time instead, 110 pods with five volumes each and 50 ms a call take
// 1.4 times as long to mount and 1.5 times to unmount (docs/performance.md).
type Pace struct {
	// least is the shortest call of each kind, from the first on that began with no
	// more than Limits.First in flight.
	least [Detach + 1]time.Duration
	// like counts the moments of calls in a crowd that took about that long, since
	// one took longer; last is the latest of them. unlike counts the calls since one
	// did not take longer than the crowd pays for.
	like, unlike int
	last         time.Time
	// works is set when a crowd did not pay, until the burst is over.
	works bool
	// known counts the calls that were in flight when the driver was last given
	// fewer, which teach nothing new; by is whose failure it was.
	known int
	by    state.VolumeID
}

// Fast reports whether calls of a kind are known to be so short that
// Limits.Driver of them at once are as good as any number.
func (p *Pace) Fast(k Kind) bool { return p.least[k] != 0 && p.least[k] < slowCall }

// Failed takes in a call for volume id that ended with a code, and returns as
// Ended does. A driver that has too much to do gets half of the slots that it
// had, once for all calls that were in flight then, and one at least. A volume
// that fails again and again says nothing of the driver.
func (p *Pace) Failed(l Limits, id state.VolumeID, code string, r Running) int {
	switch {
	case p.known > 0:
		p.known--
	case state.CodeOf("", code).Overload && id != p.by:
		p.by, p.known, p.like = id, r.Calls, 0
		return max(1, (l.Driver+r.More)/2) - l.Driver
	}
	return r.More
}

// Ended takes in a call that the driver answered with OK, and returns how many
// slots it has now beyond Limits.Driver: one more where it had fewer, all that there
// are where a crowd takes no longer than few do, and none where a crowd does not
// pay. r is what else it has in flight; waiting says that other calls wait for a slot.
func (p *Pace) Ended(l Limits, c Call, r Running, waiting bool) int {
	p.learn(l, c, r.Calls == 0 && !waiting)
	p.judge(l, c)
	p.by, p.known = "", max(0, p.known-1)
	switch {
	case r.More < 0:
		return r.More + 1
	case r.More > 0 && p.unlike >= unlike:
		p.works = true
		return 0
	case waiting && p.like >= alike && !p.works:
		return max(0, l.Most-l.Driver)
	}
	return r.More
}

// learn takes in how long a call took. last says that it was the last of a burst.
func (p *Pace) learn(l Limits, c Call, last bool) {
	least := &p.least[c.Kind]
	switch {
	case *least == 0 && c.With <= max(1, l.First):
		*least = c.Took
	case c.Took < *least:
		if *least > c.Took*3/2 {
			p.like = 0 // those were not like this one
		}
		*least = c.Took
	case *least != 0 && last && c.With == 1:
		*least += (c.Took - *least) / drift // the driver may have become slower
	}
	p.works = p.works && !last
}

// judge compares a call of a crowd with the shortest.
func (p *Pace) judge(l Limits, c Call) {
	least := p.least[c.Kind]
	if least == 0 || c.With <= l.First || c.Took < slowCall {
		return
	}
	// A crowd pays while it is at least half as many calls a second as it would be if
	// each took as long as the shortest; a large one while it is as many as
	// Limits.Driver could be at best: the time in which a busy machine begins and ends
	// so many calls is not the driver's.
	long := max(least, slowCall) * time.Duration(max(2, c.With/l.Driver))
	if p.unlike++; c.Took < long {
		p.unlike = 0
	}
	if c.Began.Sub(p.last) < FirstWait/2 {
		return // what was late of a moment that told says nothing
	}
	if p.like++; c.Took > least*3/2 || p.Fast(c.Kind) {
		p.like = 0
		return
	}
	p.last = c.Began
}
