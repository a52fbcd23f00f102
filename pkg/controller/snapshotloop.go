package controller

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// snapshots holds all snapshots. Owned by Run.
type snapshots struct {
	entries map[Key]*snapshotEntry
	dirty   map[Key]struct{}
	// names maps each record.Name to its snapshot.
	names map[string]Key
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
		entries: map[Key]*snapshotEntry{}, dirty: map[Key]struct{}{}, inFlight: map[state.VolumeID]pendingSnapshot{},
		names:   map[string]Key{},
		foreign: map[state.VolumeID]int{}, waiting: map[state.VolumeID][]*attachCall{}, reading: map[Key]int{},
	}
}

// pendingSnapshot is a snapshot that is being made, alone or as part of a group.
type pendingSnapshot struct {
	snapshot Key
	driver   state.DriverName
}

// snapshotEntry is one snapshot: its record, its wanted state and the call in flight.
type snapshotEntry struct {
	key    Key
	rec    snapshotRecord
	want   Snapshot
	listed bool
	// unreadable says why the record in the journal cannot be read, or is "". If it is set, the
	// snapshot is not touched.
	unreadable string
	// unsaved means that rec has changes that the journal lacks. The next commit writes them.
	unsaved bool
	// doing is the call in flight, if any.
	doing snapshotOp
	// group is the group snapshot that it belongs to, whose record contains it; or nil.
	group *groupEntry

	waiting
}

// driver returns the driver that made, or would make, the snapshot.
func (e *snapshotEntry) driver() state.DriverName {
	if e.rec.Content.Phase != state.Absent {
		return e.rec.Spec.Driver
	}
	return e.want.Class.Driver
}

// gone reports whether the snapshot has no record, is not wanted, and has nothing in flight.
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

func (s *snapshots) entry(key Key) *snapshotEntry {
	e := s.entries[key]
	if e == nil {
		e = &snapshotEntry{key: key, waiting: waiting{since: time.Now()}}
		s.entries[key] = e
	}
	return e
}

// set replaces e's record and updates the names. It plans the snapshots that wait for a name that
// is now free.
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

// isMaking reports whether a snapshot with the key is being made. It may have no entry yet.
func (s *snapshots) isMaking(key Key) bool {
	for _, snap := range s.inFlight {
		if snap.snapshot == key {
			return true
		}
	}
	return false
}

// touch marks the snapshot for planning in the next step.
func (s *snapshots) touch(key Key) { s.dirty[key] = struct{}{} }

// foreignEnded records that an attach or detach of a volume without a claim has ended.
func (c *Controller) foreignEnded(volume state.VolumeID) {
	if c.snapshots.foreign[volume]--; c.snapshots.foreign[volume] == 0 {
		delete(c.snapshots.foreign, volume)
		c.touchSnapshotsOf(volume)
	}
}

// stepSnapshots plans the dirty snapshots, makes their intents durable in one commit and starts
// their calls.
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
				// Now, because another may be planned in the same step.
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

// wanted returns what a source lists, or nil.
func (e *snapshotEntry) wanted() *Snapshot {
	if !e.listed {
		return nil
	}
	return &e.want
}

// planSnapshot decides the next step for e.
func (c *Controller) planSnapshot(e *snapshotEntry) snapshotOp {
	if e.doing.verb != noSnapshotVerb {
		return snapshotOp{} // finishSnapshot plans it again
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

// heldByGroup returns what a snapshot of a group waits for.
func (e *snapshotEntry) heldByGroup(g *groupEntry) held {
	if e.listed {
		return refusedf("its name is that of a snapshot of group snapshot %s; give it another name", g.key)
	}
	return g.held
}

// beginSnapshot starts a step whose intent is durable. If err is set, the intent is not durable,
// and beginSnapshot takes the step back.
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
	c.snapshots.set(e, rec)
}

// touchClaimOf plans the claim that a volume was made for.
func (c *Controller) touchClaimOf(id state.VolumeID) {
	if claim, ok := c.handles[id]; ok {
		c.touch(claim)
	}
}

// touchRestores plans the claims that are to be made from the snapshot, and the claim of its
// volume, which may wait for the snapshot to be listed or deleted.
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

// lookAtSnapshot plans e at the given time unless it is planned before.
func (c *Controller) lookAtSnapshot(e *snapshotEntry, at time.Time) {
	e.lookAgain(at, func() { c.post(func(context.Context) { c.snapshots.touch(e.key) }) })
}

// publishSnapshots updates the public status of the snapshots and drops those that are gone.
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
