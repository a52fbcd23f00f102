package controller

import (
	"context"
	"fmt"

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

// Reclaim gives the claim's volume a reclaim policy at a person's request, durably. Its error wraps ErrNotFound if
// the claim has no volume, or ErrUnreadable.
func (c *Controller) Reclaim(ctx context.Context, key Key, policy ReclaimPolicy) error {
	err := c.do(ctx, func(run context.Context) error {
		e := c.claims.entries[key]
		switch {
		case e != nil && e.unreadable != "":
			return fmt.Errorf("%w: %s", ErrUnreadable, e.unreadable)
		case e == nil || !e.rec.usable():
			return ErrNotFound
		}
		rec := e.rec
		rec.Spec.Reclaim = policy
		if err := claimBucket().commit(run, c.cfg, map[Key]record{key: rec}); err != nil {
			return err
		}
		e.rec = rec
		c.claims.touch(key)
		return nil
	})
	if err != nil {
		return fmt.Errorf("set the reclaimPolicy of claim %s: %w", key, err)
	}
	return nil
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
