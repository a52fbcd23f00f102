package controller

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// groups holds all group snapshots. Owned by Run.
type groups struct {
	entries map[Key]*groupEntry
	dirty   map[Key]struct{}
	// names maps each record.Name to its group snapshot.
	names map[string]Key
}

func newGroups() groups {
	return groups{entries: map[Key]*groupEntry{}, dirty: map[Key]struct{}{}, names: map[string]Key{}}
}

// groupEntry is one group snapshot: its record, its wanted state and the operation in flight.
type groupEntry struct {
	key    Key
	rec    groupRecord
	want   Group
	listed bool
	// unreadable says why the record in the journal cannot be read, or is "". If it is set, the
	// snapshots are not touched.
	unreadable string
	// unsaved means that rec has changes that the journal lacks. The next commit writes them.
	unsaved bool
	// doing is the operation in flight, if any. unsavedVolumes are the volumes of the last
	// operation until the journal has its outcome: after a crash before that, the operation is
	// repeated.
	doing          groupOp
	unsavedVolumes []state.VolumeID
	// members are the entries of its snapshots, whose records come from rec.
	members []*snapshotEntry

	waiting
}

// driver returns the driver that made, or would make, the snapshots.
func (e *groupEntry) driver() state.DriverName {
	if e.rec.Content.Phase != state.Absent {
		return e.rec.Spec.Driver
	}
	return e.want.Class.Driver
}

// gone reports whether the group snapshot has no record, is not wanted, and has nothing in flight.
func (e *groupEntry) gone() bool {
	return e.rec.empty() && !e.listed && !e.unsaved && e.doing.verb == noGroupVerb && e.unreadable == ""
}

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

func (g *groups) entry(key Key) *groupEntry {
	e := g.entries[key]
	if e == nil {
		e = &groupEntry{key: key, waiting: waiting{since: time.Now()}}
		g.entries[key] = e
	}
	return e
}

// touch marks the group snapshot for planning in the next step.
func (g *groups) touch(key Key) { g.dirty[key] = struct{}{} }

// touchPending plans the group snapshots of a namespace that do not exist yet: the name of a
// snapshot is free.
func (g *groups) touchPending(namespace string) {
	for key, e := range g.entries {
		if key.Namespace == namespace && e.listed && e.rec.Content.Phase == state.Absent {
			g.touch(key)
		}
	}
}

// setGroup replaces e's record and updates the entries of its snapshots.
func (c *Controller) setGroup(e *groupEntry, rec groupRecord) {
	old := e.rec.Name
	if e.rec = rec; !rec.empty() {
		c.groups.names[rec.Name] = e.key
	}
	if old != "" && old != rec.Name {
		delete(c.groups.names, old)
		for key, other := range c.groups.entries {
			if other.listed && groupName(other.want.UID) == old {
				c.groups.touch(key)
			}
		}
	}
	before := e.members
	e.members = nil
	for _, m := range rec.Members {
		s := c.snapshots.entry(rec.key(m))
		if s.group != e && !s.rec.empty() {
			c.log.Error("a snapshot has the name of one of a group snapshot, and is shown in its place",
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

// touchGroup plans a group, its snapshots and the claims that are to be made from them.
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

// stepGroups plans the dirty group snapshots, makes their intents durable in one commit and starts
// their calls.
func (c *Controller) stepGroups(ctx context.Context) {
	keys := slices.SortedFunc(maps.Keys(c.groups.dirty), Key.compare)
	clear(c.groups.dirty)
	todo := map[Key]groupOp{}
	changes := map[Key]groupRecord{}
	for _, key := range keys {
		e := c.groups.entries[key]
		if e == nil {
			continue
		}
		if e.unsaved {
			changes[key] = e.rec
		}
		if o := c.planGroup(e); o.verb != noGroupVerb {
			todo[key] = o
			changes[key] = beginGroup(e.rec, e.wanted(), o)
			if o.reservesVolumes() { // now, because another may be planned in the same step
				for _, m := range o.members {
					c.snapshots.inFlight[state.SharedID(o.spec.Driver, m.Volume)] = pendingSnapshot{changes[key].key(m), o.spec.Driver}
				}
			}
			if o.verb != dropGroup {
				c.groups.names[changes[key].Name] = key
			}
		}
	}
	err := groupBucket().commit(ctx, c.cfg, changes)
	for _, key := range keys {
		if o, ok := todo[key]; ok {
			c.beginGroup(ctx, c.groups.entries[key], o, changes[key], err)
		}
	}
	for key := range changes {
		e := c.groups.entries[key]
		if err != nil {
			c.lookAtGroup(e, time.Now().Add(storeWait))
			continue
		}
		for _, id := range e.unsavedVolumes {
			c.touchClaimOf(id)
		}
		e.unsaved, e.unsavedVolumes = false, nil
	}
	c.publishGroups(keys)
}

// planGroup decides the next step for e.
func (c *Controller) planGroup(e *groupEntry) groupOp {
	if e.doing.verb != noGroupVerb {
		return groupOp{} // finishGroup plans it again
	}
	e.stopTimer()
	if e.unreadable != "" {
		e.hold(held{reason: "its record cannot be read, so its snapshots are not touched: " + e.unreadable})
		return groupOp{}
	}
	o, h := nextGroup(e.rec, e.wanted(), c.factsOfGroup(e), time.Now())
	e.hold(h)
	if !h.until.IsZero() {
		c.lookAtGroup(e, h.until)
	}
	return o
}

// beginGroup starts a step whose intent is durable. If err is set, the intent is not durable, and
// beginGroup takes the step back.
func (c *Controller) beginGroup(ctx context.Context, e *groupEntry, o groupOp, rec groupRecord, err error) {
	if err != nil {
		if e.rec.Name != rec.Name {
			delete(c.groups.names, rec.Name)
		}
		c.releaseGroupVolumes(ctx, o)
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

// lookAtGroup plans e at the given time unless it is planned before.
func (c *Controller) lookAtGroup(e *groupEntry, at time.Time) {
	e.lookAgain(at, func() { c.post(func(context.Context) { c.groups.touch(e.key) }) })
}
