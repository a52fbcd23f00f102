package controller

import (
	"context"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// doubted is why a deletion is not carried out that was read from the journal, if the journal may have lost
// what came after it: the deletion may have ended then, and the driver may have made new storage under the
// same handle since, and no record is left of either. It ends when a person asks for the deletion again, with
// the verb remove, or accepts the loss.
func doubted(remove string, key Key) held {
	return heldf("its deletion waits for csi-volmgr journal accept --reason=TEXT, or for another csi-volmgr delete "+
		"%s %s -n %s, since it was asked for before the daemon started and the journal may have lost newer records: what it "+
		"would delete may be newer", remove, key.Name, key.Namespace).on(state.RecordsLost, "")
}

// lost reports whether the journal may have lost its newest records and no operator has accepted that.
func (c *Controller) lost() bool { return c.cfg.Lost != nil && c.cfg.Lost() }

// LossAccepted plans everything again, since an operator has accepted the loss of records.
func (c *Controller) LossAccepted() {
	c.AllUsageChanged()
	c.post(func(context.Context) {
		for key := range c.snapshots.entries {
			c.snapshots.touch(key)
		}
		for _, e := range c.groups.entries {
			c.touchGroup(e)
		}
	})
}

// askAgain answers a request to delete an object whose record has the deletion already.
func askAgain[R any](c *Controller, e *row[R], listed bool) error {
	if e.old && c.lost() && listed {
		return ErrListed
	}
	e.old = false
	return nil
}
