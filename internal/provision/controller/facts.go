package controller

import (
	"context"
	"fmt"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// driverOf returns the driver that made, or would make, the volume of e.
func driverOf(e *entry) state.DriverName {
	if e.rec.Volume.Phase != state.Absent {
		return e.rec.Spec.Driver
	}
	return e.want.Claim.Class.Provisioner
}

// facts collects what next needs to know about e.
func (c *Controller) facts(e *entry) facts {
	f := facts{InUse: c.inUse(e), Doubt: e.old && c.lost()}
	name := driverOf(e)
	switch d := c.drivers[name]; {
	case d == nil:
		f.Driver = c.missing(name)
	default:
		c.ensureAsked(d)
		f.Driver = driverFacts{
			Problem: d.problem(), Cause: d.cause(), Asking: d.asking(), Full: c.slotsOf(name).taken >= c.cfg.MaxCalls,
			Topology: d.Topology, NodeUnknown: d.nodeUnknown(), caps: d.caps,
		}
	}
	f.Cloning = c.cloning(e)
	switch {
	case e.want.Claim.Source.ofClaim():
		f.Source = c.cloneSource(e.want.Claim)
	case e.want.Claim.Source.ofSnapshot():
		f.Source = c.snapshotSource(e.want.Claim)
	}
	if e.rec.Delete {
		f.Snapshotting = c.deletionBlocker(e)
	}
	return f
}

// cloning returns the claim that is being made as a clone of e's volume, and what it waits for; or "".
func (c *Controller) cloning(e *entry) (by string) {
	for _, key := range c.clonesOf(e.key) {
		o := c.claims.entries[key]
		if o != nil && o.makesFrom(source{Claim: e.key, Volume: e.rec.Handle}) {
			by = key.String() + unlistedNote(o.want.Listed || o.rec.Delete)
		}
	}
	return by
}

// cloneSource finds the volume that claim will be a clone of.
func (c *Controller) cloneSource(claim Claim) sourceFacts {
	key := claim.Source.Claim
	src := c.claims.entries[key]
	switch {
	case src == nil || !src.rec.usable():
		return sourceFacts{Problem: fmt.Sprintf("its source, claim %s, has no volume", key)}
	case src.rec.Spec.Driver != claim.Class.Provisioner:
		return sourceFacts{Problem: fmt.Sprintf("its source, claim %s, is of driver %s, not %s",
			key, src.rec.Spec.Driver, claim.Class.Provisioner)}
	case src.rec.Spec.Mode != claim.Mode: // else a pod's author could write a file system for the kernel to mount
		return sourceFacts{Problem: fmt.Sprintf("it asks for volumeMode %s, and the volume of its source, claim %s, is %s",
			claim.Mode, key, src.rec.Spec.Mode)}
	case claim.SizeBytes < src.rec.RequestedBytes:
		return sourceFacts{Problem: fmt.Sprintf("it asks for %d bytes, and its source, claim %s, for %d; want as much",
			claim.SizeBytes, key, src.rec.RequestedBytes)}
	}
	return sourceFacts{Handle: src.rec.Handle}
}

// makesFrom reports whether e's volume is being made from the source, may be, or is made but not
// yet in the journal: after a crash it would be requested again, from a source that is gone.
func (e *entry) makesFrom(from source) bool {
	return e.rec.Spec.Source == from && (e.rec.Volume.Phase == state.Entering || e.unsaved)
}

// Needed says what is listed, is to be made of the claim's volume and has not begun ("snapshot
// default/s"), or returns "". What has begun delays the deletion of the volume.
func (c *Controller) Needed(ctx context.Context, claim Key) (by string, err error) {
	err = c.read(ctx, func() {
		if e := c.claims.entries[claim]; e != nil {
			by = c.needed(e)
		}
	})
	return by, err
}

// needed is Needed in Run's goroutine.
func (c *Controller) needed(e *entry) string {
	var all []string
	for _, key := range c.clonesOf(e.key) {
		o := c.claims.entries[key]
		if o != nil && o.rec.Volume.Phase == state.Absent && o.want.Claim.Source.ofClaim() &&
			o.want.Claim.Source.Claim == e.key {
			all = append(all, "claim "+key.String())
		}
	}
	for key, s := range c.snapshots.entries {
		if s.listed && s.group == nil && s.rec.Content.Phase == state.Absent && s.want.Claim == e.key {
			all = append(all, "snapshot "+key.String())
		}
	}
	for key, g := range c.groups.entries {
		of := func(m Member) bool { return m.Claim == e.key }
		if g.rec.Content.Phase == state.Absent && slices.ContainsFunc(g.want.Members, of) {
			all = append(all, "group snapshot "+key.String())
		}
	}
	if len(all) == 0 || e.rec.Volume.Phase == state.Absent {
		return ""
	}
	return slices.Min(all) // so that the answer does not vary
}

func (c *Controller) inUse(e *entry) string {
	if e.rec.Handle == "" {
		return ""
	}
	return c.cfg.Usage.InUse(e.id(), e.rec.Name)
}

func (c *Controller) listed(e *entry) string {
	if e.rec.Handle == "" {
		return ""
	}
	return c.cfg.Usage.Listed(e.key, e.id(), e.rec.Name)
}
