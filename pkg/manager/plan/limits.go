package plan

import "time"

// Limits bounds how many calls are in flight at once.
type Limits struct {
	// Node bounds all calls, Driver those of one driver.
	Node, Driver int
	// Most is what a driver may have that takes no longer for many calls than
	// for one (Pace); 0 means Driver.
	Most int
	// First is how many calls a driver that is not known to be fast may have at the
	// beginning of a burst, and how many more each FirstWait; 0 means Driver.
	First int
	// Reserved is how many slots of each are kept for removals, so that volumes
	// that cannot be made do not keep others from being taken away.
	Reserved int
}

// DefaultLimits: a call waits mostly for its driver, so the bounds are there to
// protect drivers from a burst rather than this process.
func DefaultLimits() Limits { return Limits{Node: 1024, Driver: 64, Most: 1000, First: 8, Reserved: 8} }

// Running counts calls in flight; Making those of them that do not remove. More
// is how many a driver may have beyond Limits.Driver, and below zero how many
// fewer ([Pace]). Slow and SlowMaking are those of Calls and Making that have
// taken long (SlowSlot): they hold no other call up where there are to be fewer.
// First is how many it may have at the beginning of a burst; 0 means as many
// as ever.
type Running struct{ Calls, Making, More, Slow, SlowMaking, First int }

// SlowSlot is when a call has taken long enough to give its slot away where a
// driver may have fewer calls than the limit says: one that hangs must hold up no
// other volume (rule 9).
const SlowSlot = 10 * time.Second

// Admit reports whether a call of kind k may begin, given the counts of the
// node and of the call's driver.
func (l Limits) Admit(node, driver Running, k Kind) bool {
	if node.Calls >= l.Node || driver.Calls >= l.Driver+max(0, driver.More) || driver.First > 0 &&
		driver.Calls >= driver.First {
		return false
	}
	calls, making, limit := driver.Calls, driver.Making, l.Driver+driver.More
	if driver.More < 0 {
		calls, making = calls-driver.Slow, making-driver.SlowMaking
	}
	if k.Removes() { // one always may, whatever is being made
		return calls < limit || calls == making
	}
	room := making < max(1, limit-l.Reserved) && driver.Making < max(1, l.Driver+max(0, driver.More)-l.Reserved)
	return node.Making < l.Node-l.Reserved && calls < limit && room
}

// Widen returns what Running.First is FirstWait later.
func (l Limits) Widen(first int) int {
	if first += l.First; first < l.Driver {
		return first
	}
	return 0
}
