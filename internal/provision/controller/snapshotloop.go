package controller

import (
	"context"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// snapshots holds all snapshots. Owned by Run.
type snapshots struct {
	table[*snapshotEntry]
	// inFlight maps a source volume to the snapshot whose CreateSnapshot is in flight.
	inFlight map[state.VolumeID]pendingSnapshot
	// foreign counts, by volume, the attaches and detaches in flight of volumes without a claim
	// here. waiting are their callers that wait for a CreateSnapshot of the volume to end.
	foreign map[state.VolumeID]int
	waiting map[state.VolumeID][]*attachCall
	// reading counts the callers that read the blocks of a snapshot.
	reading map[Key]int
}

func newSnapshots() snapshots {
	return snapshots{
		table:    newTable(func(key Key) *snapshotEntry { return &snapshotEntry{row: newRow[snapshotRecord](key)} }),
		inFlight: map[state.VolumeID]pendingSnapshot{}, foreign: map[state.VolumeID]int{},
		waiting: map[state.VolumeID][]*attachCall{}, reading: map[Key]int{},
	}
}

// pendingSnapshot is a snapshot that is being made, alone or as part of a group.
type pendingSnapshot struct {
	snapshot Key
	driver   state.DriverName
}

// snapshotEntry is one snapshot: its record, its wanted state and the call in flight.
type snapshotEntry struct {
	row[snapshotRecord]
	want   Snapshot
	listed bool
	// doing is the call in flight, if any.
	doing snapshotOp
	// group is the group snapshot that it belongs to, whose record contains it; or nil.
	group *groupEntry
}

func (e *snapshotEntry) hidden() bool { return e.rec.former() && !e.listed }

// driver returns the driver that made, or would make, the snapshot.
func (e *snapshotEntry) driver() state.DriverName {
	if e.rec.Content.Phase != state.Absent {
		return e.rec.Spec.Driver
	}
	return e.want.Class.Driver
}

func (e *snapshotEntry) gone() bool {
	return e.rec.empty() && !e.listed && !e.unsaved && e.doing.verb == noSnapshotVerb && e.unreadable == ""
}

// mismatch says why the existing snapshot is not the one that a source lists under its name, or
// returns "". A snapshot that is removed from its manifest and listed again is the same.
func (e *snapshotEntry) mismatch() string {
	there := e.rec.Content.Phase == state.Present || e.rec.Content.Phase == state.Entering
	if !e.listed || !there {
		return ""
	}
	return e.rec.mismatch(e.want)
}

// source returns the volume that the snapshot is of, or the volume wanted for it.
func (e *snapshotEntry) source() state.VolumeID {
	if id := e.rec.source(); id != "" || e.want.Volume == "" {
		return id
	}
	return state.SharedID(e.want.Class.Driver, e.want.Volume)
}

func (e *snapshotEntry) wantedName() string {
	if !e.listed {
		return ""
	}
	return e.want.snapshotName()
}

// set replaces e's record and updates the names.
func (s *snapshots) set(e *snapshotEntry, rec snapshotRecord) {
	old := e.rec.Name
	e.rec = rec
	s.rename(e.key, old, rec.Name)
}

// isMaking reports whether a snapshot with the key is being made. It may have no entry yet.
func (s *snapshots) isMaking(key Key) bool {
	for _, snap := range s.inFlight {
		if snap.snapshot == key {
			return true
		}
	}
	return false
}

// foreignEnded records that an attach or detach of a volume without a claim has ended.
func (c *Controller) foreignEnded(volume state.VolumeID) {
	if c.snapshots.foreign[volume]--; c.snapshots.foreign[volume] == 0 {
		delete(c.snapshots.foreign, volume)
		c.touchSnapshotsOf(volume)
	}
}

// stepSnapshots takes one step for each dirty snapshot.
func (c *Controller) stepSnapshots(ctx context.Context) {
	snapshots := stepper[*snapshotEntry, snapshotRecord, snapshotOp]{
		table: &c.snapshots.table, bucket: snapshotBucket(),
		row:  func(e *snapshotEntry) *row[snapshotRecord] { return &e.row },
		plan: c.planSnapshot, begin: c.beginSnapshot,
		saved: func(e *snapshotEntry) { c.touchClaimOf(e.rec.source()) },
	}
	c.publishSnapshots(snapshots.step(ctx, c))
}

// wanted returns what a source lists, or nil.
func (e *snapshotEntry) wanted() *Snapshot {
	if !e.listed {
		return nil
	}
	return &e.want
}

// planSnapshot decides the next step for e.
func (c *Controller) planSnapshot(e *snapshotEntry) (o snapshotOp, rec snapshotRecord, ok bool) {
	if e.doing.verb != noSnapshotVerb {
		return snapshotOp{}, snapshotRecord{}, false // finishSnapshot plans it again
	}
	e.stopTimer()
	if e.group != nil {
		e.hold(e.heldByGroup(e.group))
		return snapshotOp{}, snapshotRecord{}, false
	}
	if e.unreadable != "" {
		e.hold(held{reason: "its record cannot be read, so the snapshot is not touched: " + e.unreadable})
		return snapshotOp{}, snapshotRecord{}, false
	}
	o, h := nextSnapshot(e.rec, e.wanted(), c.factsOfSnapshot(e), time.Now())
	e.hold(h)
	if !h.until.IsZero() {
		planAt(c, &c.snapshots.table, &e.row, h.until)
	}
	if o.verb == noSnapshotVerb {
		return snapshotOp{}, snapshotRecord{}, false
	}
	if o.verb == createSnapshot && o.from == state.Absent {
		o.spec.Mark = c.markOf(o.spec.Claim, state.SharedID(o.spec.Driver, o.spec.Volume))
	}
	rec = beginSnapshot(e.rec, e.wanted(), o)
	if o.verb == createSnapshot { // now, because another may be planned in the same step
		c.snapshots.inFlight[state.SharedID(o.spec.Driver, o.spec.Volume)] = pendingSnapshot{e.key, o.spec.Driver}
		c.snapshots.names[rec.Name] = e.key
	}
	return o, rec, true
}

// markOf returns the mark of the claim's volume, if that was made here and is the volume of the id.
func (c *Controller) markOf(claim Key, id state.VolumeID) string {
	if e := c.claims.entries[claim]; e != nil && e.id() == id {
		return e.rec.Mark
	}
	return ""
}

// heldByGroup returns what a snapshot of a group waits for.
func (e *snapshotEntry) heldByGroup(g *groupEntry) held {
	if e.listed {
		return refusedf("its name belongs to a snapshot of group snapshot %s; give it another name", g.key)
	}
	return g.held
}

// beginSnapshot starts a step whose intent is durable. If err is set, the intent is not durable,
// and beginSnapshot takes the step back.
func (c *Controller) beginSnapshot(ctx context.Context, e *snapshotEntry, o snapshotOp, rec snapshotRecord, err error) {
	if err != nil {
		if o.verb == createSnapshot && e.rec.Name != rec.Name {
			delete(c.snapshots.names, rec.Name)
		}
		c.afterStoreWait(func(ctx context.Context) { c.releaseSnapshotVolume(ctx, o) })
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

// releaseSnapshotVolume permits other calls for the volume after o has ended or was not begun.
func (c *Controller) releaseSnapshotVolume(ctx context.Context, o snapshotOp) {
	if o.verb != createSnapshot {
		return
	}
	c.releaseVolume(ctx, o.spec.Driver, o.spec.Volume)
}

// releaseVolume permits other calls for a volume, and plans those that waited for it or for its
// driver.
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

// setSnapshot replaces e's record. It plans the claim of the volume, whose deletion may wait for
// it.
func (c *Controller) setSnapshot(e *snapshotEntry, rec snapshotRecord) {
	c.touchClaimOf(e.rec.source())
	before := e.rec.handleOf()
	c.snapshots.set(e, rec)
	c.touchSharers(before)
	if rec.handleOf() != before {
		c.touchSharers(rec.handleOf())
	}
}

// touchClaimOf plans the claim that a volume was made for.
func (c *Controller) touchClaimOf(id state.VolumeID) {
	if claim, ok := c.handles[id]; ok {
		c.claims.touch(claim)
	}
}

// touchRestores plans the claims that will be made from the snapshot, and the claim of its
// volume, which may wait for the snapshot to be listed or deleted.
func (c *Controller) touchRestores(snapshot Key) {
	if e := c.snapshots.entries[snapshot]; e != nil {
		c.touchClaimOf(e.rec.source())
	}
	for key, e := range c.claims.entries {
		if e.want.Claim.Source.ofSnapshot() && e.want.Claim.Source.Snapshot == snapshot {
			c.claims.touch(key)
		}
	}
}

// publishSnapshots updates the public status of the snapshots and drops those that are gone.
func (c *Controller) publishSnapshots(keys []Key) {
	publish(&c.view, &c.snapshots.table, c.view.snapshots, keys, func(e *snapshotEntry) {
		c.touchPending(e.key.Namespace)
	})
}
