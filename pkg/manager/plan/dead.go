package plan

import (
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Dead says whether the process that served a mounted file system has ended. Then every
// access to it fails, and another pod to which it is published could not use it either.
type Dead struct {
	Known bool
	// Until is the earliest time to mount it again, since its new server may end at once too.
	Until time.Time
}

const reasonDead = "the server of the mounted file system has ended; it is mounted anew once no pod has it"

// removeDead proposes op, the removal of a dead mount, so that it can be mounted again.
func (c *chooser) removeDead(op Op) {
	switch below := c.Doubt.blocksRemoval(op.Kind); {
	case !c.Synced:
		c.hold(op, reason{NotSynced, reasonSources}, time.Time{})
	case below.code != "" && op.Kind != Unpublish:
		c.hold(op, below, time.Time{})
	default:
		c.propose(op, &state.Retry{NotBefore: c.Dead.Until})
	}
}

// DeadPause returns how long to wait before a volume is mounted again whose mount was
// found dead for the nth time in a row.
func DeadPause(times int) time.Duration { return min(retryFirst<<min(times, 16), retryMost) }
