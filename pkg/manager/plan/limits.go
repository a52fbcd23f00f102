package plan

import "time"

// Limits bounds how many calls are in flight at once.
type Limits struct {
	// Node bounds all calls, Driver the calls of one driver.
	Node, Driver int
	// Most bounds the calls of a driver that takes no longer for many calls than for one
	// (Pace); 0 means Driver.
	Most int
	// First is how many calls a driver that is not known to be fast gets at the beginning
	// of a burst, and how many more after each FirstWait; 0 means Driver.
	First int
	// Reserved is how many slots of the node and of each driver are kept for removals, so
	// that volumes that cannot be mounted do not keep others from being removed.
	Reserved int
}

// DefaultLimits returns the limits that are used unless others are configured. A call mostly
// waits for its driver, so they protect drivers from bursts rather than this process.
func DefaultLimits() Limits { return Limits{Node: 1024, Driver: 64, Most: 1000, First: 8, Reserved: 8} }

// Running counts the calls in flight, of the node or of one driver. Making counts those
// that are not removals. More is how many calls a driver may have beyond Limits.Driver,
// or, below zero, how many fewer ([Pace]). Slow and SlowMaking count those of Calls and
// Making that have taken longer than SlowSlot: they do not count against a lowered limit.
// First is how many calls a driver may have at the beginning of a burst; 0 means no
// such bound.
type Running struct{ Calls, Making, More, Slow, SlowMaking, First int }

// SlowSlot is how long a call may hold its slot while its driver's limit is lowered: a
// call that hangs must not delay another volume (rule 9).
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
	if k.Removes() { // one removal is admitted even beyond a lowered limit
		return calls < limit || calls == making
	}
	room := making < max(1, limit-l.Reserved) && driver.Making < max(1, l.Driver+max(0, driver.More)-l.Reserved)
	return node.Making < l.Node-l.Reserved && calls < limit && room
}

// Widen returns the next value of Running.First, after FirstWait has passed.
func (l Limits) Widen(first int) int {
	if first += l.First; first < l.Driver {
		return first
	}
	return 0
}
