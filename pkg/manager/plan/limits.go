package plan

// Limits bounds how many calls are in flight at once.
type Limits struct {
	// Node bounds all calls, Driver those of one driver.
	Node, Driver int
	// Most is what a driver may have that takes no longer for many calls than
	// for one (Pace); 0 means Driver.
	Most int
	// Reserved is how many slots of each are kept for removals, so that volumes
	// that cannot be made do not keep others from being taken away.
	Reserved int
}

// DefaultLimits: a call waits mostly for its driver, so the bounds are there to
// protect drivers from a burst rather than this process.
func DefaultLimits() Limits { return Limits{Node: 1024, Driver: 64, Most: 1000, Reserved: 8} }

// Running counts calls in flight; Making those of them that do not remove. More
// is how many a driver may have beyond Limits.Driver.
type Running struct{ Calls, Making, More int }

// Admit reports whether a call of kind k may begin, given the counts of the
// node and of the call's driver.
func (l Limits) Admit(node, driver Running, k Kind) bool {
	if node.Calls >= l.Node || driver.Calls >= l.Driver+driver.More {
		return false
	}
	return k.Removes() || node.Making < l.Node-l.Reserved && driver.Making < l.Driver+driver.More-l.Reserved
}
