package controller

import (
	"context"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// SetReclaim records the reclaim policy that a source gives to the claim's volume of this name. The class gave
// it the first one. It has no effect on a volume that is not made, or is being deleted.
func (c *Controller) SetReclaim(key Key, volume string, policy ReclaimPolicy) {
	c.amend(key, volume, func(r *record) bool {
		set := r.Volume.Phase == state.Present && r.Spec.Reclaim != policy
		if set {
			r.Spec.Reclaim = policy
		}
		return set
	})
}

// SetSole records that no source has another PersistentVolume in the place of the claim's volume of this name,
// and that none gets there any longer.
func (c *Controller) SetSole(key Key, volume string) {
	c.amend(key, volume, func(r *record) bool {
		was := r.Sole
		r.Sole = true
		return !was
	})
}

// amend changes the record of a claim if its volume has the name and is not being deleted. change reports
// whether it changed anything.
func (c *Controller) amend(key Key, volume string, change func(*record) bool) {
	c.post(func(context.Context) {
		if e := c.claims.entries[key]; e != nil && e.rec.Name == volume && !e.rec.Delete && change(&e.rec) {
			e.unsaved = true
			c.claims.touch(key)
		}
	})
}
