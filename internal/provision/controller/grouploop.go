package controller

import (
	"context"
	"slices"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// groupEntry is one group snapshot: its record, its wanted state and the operation in flight.
type groupEntry struct {
	row[groupRecord]
	want   Group
	listed bool
	// doing is the operation in flight, if any. unsavedVolumes are the volumes of the last
	// operation until the journal has its outcome: after a crash before that, the operation is
	// repeated.
	doing          groupOp
	unsavedVolumes []state.VolumeID
	// members are the entries of its snapshots, whose records come from rec.
	members []*snapshotEntry
}

// driver returns the driver that made, or would make, the snapshots.
func (e *groupEntry) driver() state.DriverName {
	if e.rec.Content.Phase != state.Absent {
		return e.rec.Spec.Driver
	}
	return e.want.Class.Driver
}

func (e *groupEntry) gone() bool {
	return e.rec.empty() && !e.listed && !e.unsaved && e.doing.verb == noGroupVerb && e.unreadable == ""
}

func (e *groupEntry) hidden() bool { return false }

// volumes returns the volumes of the group snapshot, or those wanted for it.
func (e *groupEntry) volumes() []state.VolumeID {
	var ids []state.VolumeID
	if e.rec.Content.Phase == state.Absent {
		for _, m := range e.want.Members {
			ids = append(ids, state.SharedID(e.driver(), m.Volume))
		}
		return ids
	}
	for _, m := range e.rec.Members {
		ids = append(ids, state.SharedID(e.driver(), m.Volume))
	}
	return ids
}

// wanted returns what a source lists, or nil.
func (e *groupEntry) wanted() *Group {
	if !e.listed {
		return nil
	}
	return &e.want
}

func (e *groupEntry) wantedName() string {
	if !e.listed {
		return ""
	}
	return e.want.groupName()
}

// touchPending plans the group snapshots of a namespace that do not exist yet: the name of a
// snapshot is free.
func (c *Controller) touchPending(namespace string) {
	for key, e := range c.groups.entries {
		if key.Namespace == namespace && e.listed && e.rec.Content.Phase == state.Absent {
			c.groups.touch(key)
		}
	}
}

// setGroup replaces e's record and updates the entries of its snapshots.
func (c *Controller) setGroup(e *groupEntry, rec groupRecord) {
	old := e.rec.Name
	e.rec = rec
	c.groups.rename(e.key, old, rec.Name)
	before := e.members
	e.members = nil
	for _, m := range rec.Members {
		s := c.snapshots.entry(rec.key(m))
		if s.group != e && !s.rec.empty() {
			c.log.Error("a snapshot has the name of one in a group snapshot, which it hides",
				"snapshot", s.key.String(), "group", e.key.String())
			continue
		}
		s.group = e
		c.setSnapshot(s, rec.snapshot(m))
		e.members = append(e.members, s)
	}
	for _, s := range before {
		if !slices.Contains(e.members, s) {
			s.group = nil
			c.setSnapshot(s, snapshotRecord{})
			c.snapshots.touch(s.key)
		}
	}
}

// touchGroup plans a group, its snapshots and the claims that will be made from them.
func (c *Controller) touchGroup(e *groupEntry) {
	c.touchRows(e)
	for _, m := range e.members {
		c.touchRestores(m.key)
	}
}

// touchRows plans a group and its snapshots. It is for callers that plan all claims anyway.
func (c *Controller) touchRows(e *groupEntry) {
	c.groups.touch(e.key)
	for _, m := range e.members {
		c.snapshots.touch(m.key)
	}
}

// touchSnapshotsOf plans the snapshots and group snapshots of a volume after a call for it has
// ended.
func (c *Controller) touchSnapshotsOf(volume state.VolumeID) {
	if volume == "" {
		return
	}
	for key, e := range c.snapshots.entries {
		if e.source() == volume {
			c.snapshots.touch(key)
		}
	}
	for key, e := range c.groups.entries {
		if slices.Contains(e.volumes(), volume) {
			c.groups.touch(key)
		}
	}
}

// stepGroups takes one step for each dirty group snapshot.
func (c *Controller) stepGroups(ctx context.Context) {
	groups := stepper[*groupEntry, groupRecord, groupOp]{
		table: &c.groups, bucket: groupBucket(),
		row:  func(e *groupEntry) *row[groupRecord] { return &e.row },
		plan: c.planGroup, begin: c.beginGroup,
		saved: func(e *groupEntry) {
			for _, id := range e.unsavedVolumes {
				c.touchClaimOf(id)
			}
			e.unsavedVolumes = nil
		},
	}
	c.publishGroups(groups.step(ctx, c))
}

// planGroup decides the next step for e.
func (c *Controller) planGroup(e *groupEntry) (o groupOp, rec groupRecord, ok bool) {
	if e.doing.verb != noGroupVerb {
		return groupOp{}, groupRecord{}, false // finishGroup plans it again
	}
	e.stopTimer()
	if e.unreadable != "" {
		e.hold(held{reason: "its record cannot be read, so its snapshots are not touched: " + e.unreadable})
		return groupOp{}, groupRecord{}, false
	}
	o, h := nextGroup(e.rec, e.wanted(), c.factsOfGroup(e), time.Now())
	e.hold(h)
	if !h.until.IsZero() {
		planAt(c, &c.groups, &e.row, h.until)
	}
	if o.verb == noGroupVerb {
		return groupOp{}, groupRecord{}, false
	}
	rec = beginGroup(e.rec, e.wanted(), o)
	if o.reservesVolumes() { // now, because another may be planned in the same step
		for _, m := range o.members {
			c.snapshots.inFlight[state.SharedID(o.spec.Driver, m.Volume)] = pendingSnapshot{rec.key(m), o.spec.Driver}
		}
	}
	if o.verb != dropGroup {
		c.groups.names[rec.Name] = e.key
	}
	return o, rec, true
}

// beginGroup starts a step whose intent is durable. If err is set, the intent is not durable, and
// beginGroup takes the step back.
func (c *Controller) beginGroup(ctx context.Context, e *groupEntry, o groupOp, rec groupRecord, err error) {
	if err != nil {
		if e.rec.Name != rec.Name {
			delete(c.groups.names, rec.Name)
		}
		c.afterStoreWait(func(ctx context.Context) { c.releaseGroupVolumes(ctx, o) })
		e.hold(held{reason: err.Error()})
		return
	}
	c.setGroup(e, rec)
	c.touchGroup(e)
	if o.verb == dropGroup {
		c.log.Info("group snapshot changed without a call", "group", e.key.String(), "op", "drop")
		return
	}
	e.doing, e.since = o, time.Now()
	c.startGroup(ctx, e)
}

// releaseGroupVolumes permits other calls for the volumes after o has ended or was not begun.
func (c *Controller) releaseGroupVolumes(ctx context.Context, o groupOp) {
	if !o.reservesVolumes() {
		return
	}
	for _, m := range o.members {
		c.releaseVolume(ctx, o.spec.Driver, m.Volume)
	}
}
