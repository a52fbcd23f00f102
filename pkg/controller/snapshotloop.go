package controller

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// snapshots are the rows of snapshots, beside those of claims. Owned by Run.
type snapshots struct {
	entries map[Key]*snapshotEntry
	dirty   map[Key]struct{}
	// names has the snapshot of each record.Name.
	names map[string]Key
	// cutting has, by source volume, the snapshot whose CreateSnapshot is in flight.
	inFlight map[state.VolumeID]pendingSnapshot
	// direct counts, by volume, the attaches and detaches in flight of volumes that no claim
	// of ours has; waiting are the callers that wait for a CreateSnapshot of theirs to end.
	foreign map[state.VolumeID]int
	waiting map[state.VolumeID][]*attachCall
	// reading counts the callers that read the blocks of a snapshot.
	reading map[Key]int
}

func newSnapshots() snapshots {
	return snapshots{
		entries: map[Key]*snapshotEntry{}, dirty: map[Key]struct{}{}, inFlight: map[state.VolumeID]pendingSnapshot{},
		names:   map[string]Key{},
		foreign: map[state.VolumeID]int{}, waiting: map[state.VolumeID][]*attachCall{}, reading: map[Key]int{},
	}
}

// cutting is a snapshot that is being made, alone or as one of a group.
type pendingSnapshot struct {
	snapshot Key
	driver   state.DriverName
}

// snapshotEntry is one snapshot: what is known, what is wanted, and what is being done.
type snapshotEntry struct {
	key    Key
	rec    snapshotRecord
	want   Snapshot
	listed bool
	// unreadable says why the record in the journal cannot be read. Such a snapshot is not touched.
	unreadable string
	// unsaved: the journal lacks what rec says. It is written with the next commit.
	unsaved bool
	// doing is the call in flight, if any.
	doing snapshotOp
	// group is the group snapshot that it is one of, whose record has it; nil for none.
	group *groupEntry

	waiting
}

// driver names the driver that the snapshot is or would be made by.
func (e *snapshotEntry) driver() state.DriverName {
	if e.rec.Content.Phase != state.Absent {
		return e.rec.Spec.Driver
	}
	return e.want.Class.Driver
}

// gone reports whether nothing is known of the snapshot, wanted of it, or done.
func (e *snapshotEntry) gone() bool {
	return e.rec.empty() && !e.listed && !e.unsaved && e.doing.verb == noSnapshotVerb && e.unreadable == ""
}

// mismatch says why the snapshot that is there is not the one that a source lists under its name;
// "" where it is. Of one that was taken out of a manifest and listed anew, the snapshot is kept.
func (e *snapshotEntry) mismatch() string {
	there := e.rec.Content.Phase == state.Present || e.rec.Content.Phase == state.Entering
	if !e.listed || !there {
		return ""
	}
	return e.rec.mismatch(e.want)
}

// source is the volume that it is of, or is to be of.
func (e *snapshotEntry) source() state.VolumeID {
	if id := e.rec.source(); id != "" || e.want.Volume == "" {
		return id
	}
	return state.SharedID(e.want.Class.Driver, e.want.Volume)
}

func (s *snapshots) entry(key Key) *snapshotEntry {
	e := s.entries[key]
	if e == nil {
		e = &snapshotEntry{key: key, waiting: waiting{since: time.Now()}}
		s.entries[key] = e
	}
	return e
}

// set replaces e's record and keeps the names true. One that waits for a name that is free now
// is looked at.
func (s *snapshots) set(e *snapshotEntry, rec snapshotRecord) {
	old := e.rec.Name
	if e.rec = rec; !rec.empty() {
		s.names[rec.Name] = e.key
	}
	if old == "" || old == rec.Name {
		return
	}
	delete(s.names, old)
	for key, other := range s.entries {
		if other.listed && snapshotName(other.want.UID) == old {
			s.touch(key)
		}
	}
}

// makes reports whether a snapshot of the key is being made; it may have no row yet.
func (s *snapshots) isMaking(key Key) bool {
	for _, snap := range s.inFlight {
		if snap.snapshot == key {
			return true
		}
	}
	return false
}

// touch has the snapshot looked at in the next step.
func (s *snapshots) touch(key Key) { s.dirty[key] = struct{}{} }

// directEnded notes that an attach or detach has ended.
func (c *Controller) foreignEnded(volume state.VolumeID) {
	if c.snapshots.foreign[volume]--; c.snapshots.foreign[volume] == 0 {
		delete(c.snapshots.foreign, volume)
		c.touchSnapshotsOf(volume)
	}
}

// stepSnapshots plans the dirty snapshots, makes their intents durable in one commit, and
// starts their calls.
func (c *Controller) stepSnapshots(ctx context.Context) {
	keys := slices.SortedFunc(maps.Keys(c.snapshots.dirty), Key.compare)
	clear(c.snapshots.dirty)
	todo := map[Key]snapshotOp{}
	changes := map[Key]snapshotRecord{}
	for _, key := range keys {
		e := c.snapshots.entries[key]
		if e == nil {
			continue
		}
		if e.unsaved {
			changes[key] = e.rec
		}
		if o := c.planSnapshot(e); o.verb != noSnapshotVerb {
			todo[key] = o
			changes[key] = beginSnapshot(e.rec, e.wanted(), o)
			if o.verb == createSnapshot {
				// now, lest another is planned
				c.snapshots.inFlight[state.SharedID(o.spec.Driver, o.spec.Volume)] = pendingSnapshot{key, o.spec.Driver}
			}
		}
	}
	err := snapshotBucket().commit(ctx, c.cfg, changes)
	for _, key := range keys {
		if o, ok := todo[key]; ok {
			c.beginSnapshot(ctx, c.snapshots.entries[key], o, changes[key], err)
		}
	}
	for key := range changes {
		e := c.snapshots.entries[key]
		if err != nil {
			c.lookAtSnapshot(e, time.Now().Add(storeWait))
			continue
		}
		if e.unsaved {
			c.touchClaimOf(e.rec.source())
		}
		e.unsaved = false
	}
	c.publishSnapshots(keys)
}

// wanted is what a source lists; nil for none.
func (e *snapshotEntry) wanted() *Snapshot {
	if !e.listed {
		return nil
	}
	return &e.want
}

// planSnapshot decides the next step for e.
func (c *Controller) planSnapshot(e *snapshotEntry) snapshotOp {
	if e.doing.verb != noSnapshotVerb {
		return snapshotOp{} // one call in flight; its end looks again
	}
	e.stopTimer()
	if e.group != nil {
		e.hold(e.heldByGroup(e.group))
		return snapshotOp{}
	}
	if e.unreadable != "" {
		e.hold(held{reason: "its record cannot be read, so the snapshot is not touched: " + e.unreadable})
		return snapshotOp{}
	}
	o, h := nextSnapshot(e.rec, e.wanted(), c.factsOfSnapshot(e), time.Now())
	e.hold(h)
	if !h.until.IsZero() {
		c.lookAtSnapshot(e, h.until)
	}
	return o
}

// asOneOf is what a snapshot of a group waits for.
func (e *snapshotEntry) heldByGroup(g *groupEntry) held {
	if e.listed {
		return refusedf("its name is that of a snapshot of group snapshot %s; give it another name", g.key)
	}
	return g.held
}

// beginSnapshot starts a step whose intent is durable; or, where err says that it could not
// be made so, does not.
func (c *Controller) beginSnapshot(ctx context.Context, e *snapshotEntry, o snapshotOp, rec snapshotRecord, err error) {
	if err != nil {
		c.releaseSnapshotVolume(ctx, o)
		e.hold(held{reason: err.Error()})
		return
	}
	c.setSnapshot(e, rec)
	if !o.verb.calls() {
		c.log.Info("snapshot changed without a call", "snapshot", e.key.String(), "op", o.verb.String())
		c.snapshots.touch(e.key)
		c.touchRestores(e.key)
		return
	}
	e.doing, e.since = o, time.Now()
	c.startSnapshot(ctx, e)
}

// cutEnded lets others have the volume of a CreateSnapshot that is over, or was not begun.
func (c *Controller) releaseSnapshotVolume(ctx context.Context, o snapshotOp) {
	if o.verb != createSnapshot {
		return
	}
	c.releaseVolume(ctx, o.spec.Driver, o.spec.Volume)
}

// volumeFree lets others have a volume, and a call of its driver.
func (c *Controller) releaseVolume(ctx context.Context, driver state.DriverName, handle string) {
	volume := state.SharedID(driver, handle)
	delete(c.snapshots.inFlight, volume)
	nodes := c.snapshots.waiting[volume]
	delete(c.snapshots.waiting, volume)
	for _, n := range nodes {
		if n.ctx.Err() == nil {
			c.takeAttach(ctx, n)
		}
	}
	c.touchClaimOf(volume)
	c.touchSnapshotsOf(volume)
	for key, e := range c.snapshots.entries {
		if e.held.slot && e.driver() == driver {
			c.snapshots.touch(key)
		}
	}
	for key, e := range c.groups.entries {
		if e.held.slot && e.driver() == driver {
			c.groups.touch(key)
		}
	}
}

// setSnapshot replaces e's record. The claim of its volume is looked at: it may go now.
func (c *Controller) setSnapshot(e *snapshotEntry, rec snapshotRecord) {
	c.touchClaimOf(e.rec.source())
	c.snapshots.set(e, rec)
}

// touchClaimOf has the claim looked at that a volume was made for.
func (c *Controller) touchClaimOf(id state.VolumeID) {
	if claim, ok := c.handles[id]; ok {
		c.touch(claim)
	}
}

// touchRestores has the claims looked at that are to be made of the snapshot, and the one
// that it is of, which may wait for the snapshot's owner.
func (c *Controller) touchRestores(snapshot Key) {
	if e := c.snapshots.entries[snapshot]; e != nil {
		c.touchClaimOf(e.rec.source())
	}
	for key, e := range c.entries {
		if e.want.Claim.Source.ofSnapshot() && e.want.Claim.Source.Snapshot == snapshot {
			c.touch(key)
		}
	}
}

// lookAtSnapshot has e planned at the given time unless it is planned before.
func (c *Controller) lookAtSnapshot(e *snapshotEntry, at time.Time) {
	e.lookAgain(at, func() { c.post(func(context.Context) { c.snapshots.touch(e.key) }) })
}

// publishSnapshots shows the snapshots as they are now, and drops those that are gone.
func (c *Controller) publishSnapshots(keys []Key) {
	c.view.mu.Lock()
	defer c.view.mu.Unlock()
	changed := false
	for _, key := range keys {
		e := c.snapshots.entries[key]
		switch {
		case e == nil:
		case e.gone():
			e.stopTimer()
			delete(c.snapshots.entries, key)
			delete(c.view.snapshots, key)
			changed = true
			c.groups.touchPending(key.Namespace)
		default:
			s := e.status()
			changed = changed || !reflect.DeepEqual(s, c.view.snapshots[key])
			c.view.snapshots[key] = s
		}
	}
	c.view.signal(changed)
}
