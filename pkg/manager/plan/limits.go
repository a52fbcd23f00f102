package plan

// Limits bounds how many calls are in flight at once.
type Limits struct {
	// Node bounds all calls, Driver those of one driver.
	Node, Driver int
	// Reserved is how many slots of each are kept for removals, so that volumes
	// that cannot be made do not keep others from being taken away.
	Reserved int
}

// DefaultLimits: a call waits mostly for its driver, so the bounds are there to
// protect drivers from a burst rather than this process.
func DefaultLimits() Limits { return Limits{Node: 256, Driver: 64, Reserved: 8} }

// Running counts calls in flight; Making those of them that do not remove.
type Running struct{ Calls, Making int }

// Admit reports whether a call of kind k may begin, given the counts of the
// node and of the call's driver.
func (l Limits) Admit(node, driver Running, k Kind) bool {
	if node.Calls >= l.Node || driver.Calls >= l.Driver {
		return false
	}
	return k.Removes() || node.Making < l.Node-l.Reserved && driver.Making < l.Driver-l.Reserved
}
