package plan

import (
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Dead says of a mounted file system that the process that served it has ended: every
// access fails, and publishing it to another pod gives that pod the same.
type Dead struct {
	Known bool
	// Until is when it is made anew at the soonest: its server may end at once again.
	Until time.Time
}

const reasonDead = "the server of the mounted file system has ended; it is mounted anew once no pod has it"

// redo offers the removal of what is dead, for the sake of what is made in its place.
func (c *chooser) redo(op Op, f Facts) {
	switch below := c.doubt.below(); {
	case !f.Synced:
		c.hold(op, why{NotSynced, reasonSources}, time.Time{})
	case below.code != "" && op.Kind != Unpublish:
		c.hold(op, below, time.Time{})
	default:
		c.propose(op, &state.Retry{NotBefore: c.dead.Until})
	}
}

// DeadPause is how long what was found dead for the nth time in a row is left so.
func DeadPause(times int) time.Duration { return min(retryFirst<<min(times, 16), retryMost) }
