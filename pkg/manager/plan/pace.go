package plan

import (
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const (
	// slowCall is how long calls must take for more of them at once to be worthwhile. Of
	// shorter calls, DefaultLimits' 64 at a time already make 2,560 a second, more than
	// this process makes on two processors.
	slowCall = 25 * time.Millisecond
	// parallelWaves is how many waves in a row must take no longer than few calls do before a
	// driver gets more slots: on a busy machine one wave may do so by chance.
	parallelWaves = 4
	// FirstWait is how long after its first calls, Limits.First of them, a driver that is
	// not known to be fast gets as many more, and so on up to Limits.Driver. It also
	// separates waves: calls that begin closer together belong to one.
	FirstWait = 5 * time.Millisecond
	// serialCalls is how many calls in a row must be slowed by the crowd before a driver loses
	// its extra slots.
	serialCalls = 8
	// driftShare divides the difference by which a single call was slower than the shortest
	// one before it is added to that, since the machine may have been busy.
	driftShare = 8
)

// Call describes a call that ended: With is how many calls of its driver were in flight
// when it began, including itself, and Took is how long it took.
type Call struct {
	Kind  Kind
	With  int
	Began time.Time
	Took  time.Duration
}

// Pace estimates from its calls how many calls a driver can serve at once. A driver that
// waits, for a cloud for example, takes no longer for a hundred calls than for one; a
// driver that computes, or takes a lock, does. The duration of many calls at once, a
// crowd, says nothing by itself, least of all on a busy machine, where calls that begin
// together also seem to end together. So it is compared with the shortest call, several
// times, and the first calls of a burst do not all begin together.
//
// With a fixed 64 calls at a time, 110 pods with five volumes each and 50 ms a call take
// 1.4 times as long to mount and 1.5 times as long to unmount (docs/performance.md).
type Pace struct {
	// shortest is the shortest call of each kind, starting with the first call that began
	// with no more than Limits.First in flight.
	shortest [Detach + 1]time.Duration
	// waves counts the waves in a row whose calls took about as long as shortest; last is
	// when the latest of them began. slowed counts the calls in a row that took longer
	// than the crowd is worth.
	waves, slowed int
	last          time.Time
	// saturated is set when a crowd was not worthwhile, until the burst is over.
	saturated bool
	// stale counts the calls still to end that were in flight when the driver last lost
	// slots: they teach nothing new. cutFor is the volume whose failure that was.
	stale  int
	cutFor state.VolumeID
}

// Fast reports whether calls of a kind are known to be so short that more than
// Limits.Driver of them at once would gain nothing.
func (p *Pace) Fast(k Kind) bool { return p.shortest[k] != 0 && p.shortest[k] < slowCall }

// Failed records that a call for volume id ended with a code. Like Ended it returns the
// number of slots beyond Limits.Driver. A driver that reports overload keeps half of its
// slots, at least one; the calls that were in flight at that moment do not halve them
// again. A volume that fails repeatedly says nothing about the driver.
func (p *Pace) Failed(l Limits, id state.VolumeID, code string, r Running) int {
	switch {
	case p.stale > 0:
		p.stale--
	case state.CodeOf("", code).Overload && id != p.cutFor:
		p.cutFor, p.stale, p.waves = id, r.Calls, 0
		return max(1, (l.Driver+r.More)/2) - l.Driver
	}
	return r.More
}

// Ended records a call that the driver answered OK, and returns how many slots it now has
// beyond Limits.Driver: one more if its limit was lowered, up to Limits.Most if a crowd
// takes no longer than few calls do, and none if a crowd is not worthwhile. r counts the
// driver's other calls in flight; waiting says that calls wait for a slot.
func (p *Pace) Ended(l Limits, c Call, r Running, waiting bool) int {
	p.learn(l, c, r.Calls == 0 && !waiting)
	p.judge(l, c)
	p.cutFor, p.stale = "", max(0, p.stale-1)
	switch {
	case r.More < 0:
		return r.More + 1
	case r.More > 0 && p.slowed >= serialCalls:
		p.saturated = true
		return 0
	case waiting && p.waves >= parallelWaves && !p.saturated:
		return max(0, l.Most-l.Driver)
	}
	return r.More
}

// learn updates the shortest duration by c. last says that c was the last call of a burst.
func (p *Pace) learn(l Limits, c Call, last bool) {
	least := &p.shortest[c.Kind]
	switch {
	case *least == 0 && c.With <= max(1, l.First):
		*least = c.Took
	case c.Took < *least:
		if *least > c.Took*3/2 {
			p.waves = 0 // the earlier waves were compared with a longer call
		}
		*least = c.Took
	case *least != 0 && last && c.With == 1:
		*least += (c.Took - *least) / driftShare // the driver may have become slower
	}
	p.saturated = p.saturated && !last
}

// judge compares a call of a crowd with the shortest call.
func (p *Pace) judge(l Limits, c Call) {
	least := p.shortest[c.Kind]
	if least == 0 || c.With <= l.First || c.Took < slowCall {
		return
	}
	// A crowd is worthwhile while it makes at least half as many calls a second as it
	// would if each took as long as the shortest. A large crowd is while it makes as many
	// as Limits.Driver could at best: the time that a busy machine takes to begin and end
	// so many calls is not the driver's fault.
	long := max(least, slowCall) * time.Duration(max(2, c.With/l.Driver))
	if p.slowed++; c.Took < long {
		p.slowed = 0
	}
	if c.Began.Sub(p.last) < FirstWait/2 {
		return // a late call of a wave that has been counted
	}
	if p.waves++; c.Took > least*3/2 || p.Fast(c.Kind) {
		p.waves = 0
		return
	}
	p.last = c.Began
}
