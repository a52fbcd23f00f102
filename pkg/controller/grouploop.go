package controller

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// groups are the rows of group snapshots, beside those of snapshots. Owned by Run.
type groups struct {
	entries map[Key]*groupEntry
	dirty   map[Key]struct{}
	// names has the group snapshot of each record.Name.
	names map[string]Key
}

func newGroups() groups {
	return groups{entries: map[Key]*groupEntry{}, dirty: map[Key]struct{}{}, names: map[string]Key{}}
}

// groupEntry is one group snapshot: what is known, what is wanted, and what is being done.
type groupEntry struct {
	key    Key
	rec    groupRecord
	want   Group
	listed bool
	// unreadable says why the record in the journal cannot be read. Such a group is not touched.
	unreadable string
	// unsaved: the journal lacks what rec says. It is written with the next commit.
	unsaved bool
	// doing is the operation in flight, if any; cut are the volumes of the last one, until the journal
	// has how it ended: the next life would make it again.
	doing          groupOp
	unsavedVolumes []state.VolumeID
	// members are the rows of its snapshots, which show what rec says of them.
	members []*snapshotEntry

	waiting
}

// driver names the driver that the snapshots are or would be made by.
func (e *groupEntry) driver() state.DriverName {
	if e.rec.Content.Phase != state.Absent {
		return e.rec.Spec.Driver
	}
	return e.want.Class.Driver
}

// gone reports whether nothing is known of the group snapshot, wanted of it, or done.
func (e *groupEntry) gone() bool {
	return e.rec.empty() && !e.listed && !e.unsaved && e.doing.verb == noGroupVerb && e.unreadable == ""
}

// volumes are the volumes that it is of, or is to be of.
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

// wanted is what a source lists; nil for none.
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

// touch has the group snapshot looked at in the next step.
func (g *groups) touch(key Key) { g.dirty[key] = struct{}{} }

// touchUnmade has those of a namespace looked at that are to be made: the name of a snapshot is free.
func (g *groups) touchPending(namespace string) {
	for key, e := range g.entries {
		if key.Namespace == namespace && e.listed && e.rec.Content.Phase == state.Absent {
			g.touch(key)
		}
	}
}

// setGroup replaces e's record, and has the rows of its snapshots show it.
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

// touchGroup has a group looked at, its snapshots, and the claims that are to be made of them.
func (c *Controller) touchGroup(e *groupEntry) {
	c.touchRows(e)
	for _, m := range e.members {
		c.touchRestores(m.key)
	}
}

// touchRows has a group and its snapshots looked at: what it is for where all claims are looked at, too.
func (c *Controller) touchRows(e *groupEntry) {
	c.groups.touch(e.key)
	for _, m := range e.members {
		c.snapshots.touch(m.key)
	}
}

// touchCutsOf has the snapshots and group snapshots of a volume looked at: a call for it has ended.
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

// stepGroups plans the dirty group snapshots, makes their intents durable in one commit, and
// starts their calls.
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
			if o.reservesVolumes() { // now, lest another is planned
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
		return groupOp{} // one operation in flight; its end looks again
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

// beginGroup starts a step whose intent is durable; or, where err says that it could not be made
// so, does not.
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

// groupCutEnded lets others have the volumes of an operation that is over, or was not begun.
func (c *Controller) releaseGroupVolumes(ctx context.Context, o groupOp) {
	if !o.reservesVolumes() {
		return
	}
	for _, m := range o.members {
		c.releaseVolume(ctx, o.spec.Driver, m.Volume)
	}
}

// lookAtGroup has e planned at the given time unless it is planned before.
func (c *Controller) lookAtGroup(e *groupEntry, at time.Time) {
	e.lookAgain(at, func() { c.post(func(context.Context) { c.groups.touch(e.key) }) })
}
