package controller

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// storeWait is the pause before a failed commit is retried: no event says that a full or broken
// disk was repaired.
const storeWait = 5 * time.Second

// entry is one claim: its record, its wanted state and the call in flight. Owned by Run.
type entry struct {
	key  Key
	rec  record
	want want
	// unreadable says why the record in the journal cannot be read, or is "". If it is set, the
	// volume is not touched.
	unreadable string
	// unsaved means that rec has changes that the journal lacks. The next commit writes them.
	unsaved bool
	// doing is the call in flight, if any, to the driver that the record names.
	doing op
	// attaching is the caller of Attach or Detach that waits, or nil.
	attaching *attachCall
	// sources are the keys in clones under which this claim is listed.
	sources []Key

	// queued is the driver for whose slot the claim waits, granted the driver that has just given
	// it one; or "".
	queued, granted state.DriverName

	waiting
}

// id returns the id of the claim's volume, or "" if it is unknown.
func (e *entry) id() state.VolumeID {
	if e.rec.Handle == "" {
		return ""
	}
	return state.SharedID(e.rec.Spec.Driver, e.rec.Handle)
}

// gone reports whether the claim has no record, is not wanted, and has nothing in flight.
func (e *entry) gone() bool {
	return e.rec.empty() && !e.rec.Delete && !e.want.Listed && !e.unsaved &&
		e.doing.verb == noVerb && e.attaching == nil && e.unreadable == ""
}

// Run loads the records and brings volumes and snapshots to their wanted state until ctx ends. Then
// it cancels the calls in flight, drops their answers and returns nil. It returns an error if the
// records cannot be loaded. Call it once.
func (c *Controller) Run(ctx context.Context) error {
	defer close(c.done)
	ctx, cancel := context.WithCancel(ctx)
	defer c.stop(cancel)
	if c.cfg.Freezer != nil { // first of all, because pods that write wait for it
		c.calls.Go(func() {
			if err := c.cfg.Freezer.Run(ctx); err != nil {
				c.log.Error("file systems that were frozen for snapshots may still be frozen", "err", err)
			}
		})
	}
	if err := c.load(ctx); err != nil {
		return err
	}
	for {
		c.stepAll(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
		}
		for _, f := range c.takeInbox() {
			f(ctx)
		}
	}
}

// stop ends everything that Run started.
func (c *Controller) stop(cancel context.CancelFunc) {
	c.mu.Lock()
	c.stopped = true
	c.inbox = nil
	c.mu.Unlock()
	cancel()
	for _, e := range c.entries {
		e.stopTimer()
	}
	for _, e := range c.snapshots.entries {
		e.stopTimer()
	}
	for _, e := range c.groups.entries {
		e.stopTimer()
	}
	for _, d := range c.drivers {
		d.stopTimer()
	}
	c.calls.Wait()
}

// load reads the journal.
func (c *Controller) load(ctx context.Context) error {
	err := claimBucket().load(ctx, c.cfg, func(key Key, rec record, unreadable string) {
		e := c.entry(key)
		e.rec, e.unreadable = rec, unreadable
		c.index(e)
		c.touch(key)
	})
	if err != nil {
		return err
	}
	err = snapshotBucket().load(ctx, c.cfg, func(key Key, rec snapshotRecord, unreadable string) {
		e := c.snapshots.entry(key)
		e.unreadable = unreadable
		c.snapshots.set(e, rec)
		c.snapshots.touch(key)
	})
	if err != nil {
		return err
	}
	// Groups come last, because they add their snapshots to those of the journal.
	err = groupBucket().load(ctx, c.cfg, func(key Key, rec groupRecord, unreadable string) {
		e := c.groups.entry(key)
		e.unreadable = unreadable
		c.setGroup(e, rec)
		c.touchRows(e)
	})
	if err != nil {
		return err
	}
	c.publish(slices.Collect(maps.Keys(c.dirty)))
	c.publishSnapshots(slices.Collect(maps.Keys(c.snapshots.dirty)))
	c.publishGroups(slices.Collect(maps.Keys(c.groups.dirty)))
	close(c.view.loaded)
	return nil
}

// entry returns the claim's entry and creates it if there is none.
func (c *Controller) entry(key Key) *entry {
	e := c.entries[key]
	if e == nil {
		e = &entry{key: key, waiting: waiting{since: time.Now()}}
		c.entries[key] = e
	}
	return e
}

// index adds e to the indexes by name, handle and clone source.
func (c *Controller) index(e *entry) {
	if e.rec.empty() {
		return
	}
	c.names[e.rec.Name] = e.key
	if e.rec.Handle != "" {
		c.handles[state.SharedID(e.rec.Spec.Driver, e.rec.Handle)] = e.key
	}
	if e.rec.Spec.Source.Volume != "" {
		c.addClone(e.rec.Spec.Source.Claim, e)
	}
}

// setRecord replaces e's record and updates the indexes.
func (c *Controller) setRecord(e *entry, rec record) {
	old := e.rec
	e.rec = rec
	if old.Name != "" && old.Name != rec.Name {
		delete(c.names, old.Name)
		for _, other := range c.entries { // linear, but deletions are rare
			if other.want.Listed && volumeName(other.want.Claim) == old.Name {
				c.touch(other.key)
			}
		}
	}
	if old.Handle != "" && old.Handle != rec.Handle {
		delete(c.handles, state.SharedID(old.Spec.Driver, old.Handle))
	}
	c.index(e)
	if old.Volume.Phase == rec.Volume.Phase {
		return
	}
	for _, key := range c.clonesOf(e.key) {
		c.touch(key)
	}
	if src := rec.Spec.Source.Claim; src != (Key{}) {
		c.touch(src)
	}
}

// touch marks the claim for planning in the next step.
func (c *Controller) touch(key Key) { c.dirty[key] = struct{}{} }

// planned is the next step of an entry, with the record that must be durable first.
type planned struct {
	e   *entry
	op  op
	rec record
}

// stepAll takes steps until no row is dirty.
func (c *Controller) stepAll(ctx context.Context) {
	for ctx.Err() == nil && len(c.dirty)+len(c.snapshots.dirty)+len(c.groups.dirty) > 0 {
		c.step(ctx)
		c.stepGroups(ctx) // before snapshots, whose status includes that of their group
		c.stepSnapshots(ctx)
	}
}

// step plans the dirty claims, makes their intents durable in one commit and starts their calls,
// until no claim is dirty.
func (c *Controller) step(ctx context.Context) {
	for len(c.dirty) > 0 && ctx.Err() == nil {
		keys := slices.SortedFunc(maps.Keys(c.dirty), Key.compare)
		clear(c.dirty)
		var todo []planned
		changes := map[Key]record{}
		for _, key := range keys {
			e := c.entries[key]
			if e == nil {
				continue
			}
			if e.unsaved {
				changes[key] = e.rec
			}
			if p, ok := c.plan(e); ok {
				todo = append(todo, p)
				changes[key] = p.rec
			}
		}
		err := claimBucket().commit(ctx, c.cfg, changes)
		for _, p := range todo {
			c.begin(ctx, p, err)
		}
		for key := range changes {
			e := c.entries[key]
			if err != nil {
				c.lookAgain(e, time.Now().Add(storeWait))
				continue
			}
			if e.unsaved {
				c.touchSnapshotsOf(e.id())
			}
			e.unsaved = false
		}
		c.publish(keys)
	}
}

// plan decides the next step for e.
func (c *Controller) plan(e *entry) (planned, bool) {
	if e.doing.verb != noVerb {
		return planned{}, false // finish plans it again
	}
	e.stopTimer()
	if snap, ok := c.snapshots.inFlight[e.id()]; ok {
		// releaseVolume plans it again
		e.hold(heldf("volume %s: CreateSnapshot for snapshot %s is in flight", e.rec.Name, snap.snapshot))
		return planned{}, false
	}
	if e.unreadable != "" {
		e.hold(held{reason: "its record cannot be read, so its volume is not touched: " + e.unreadable})
		return planned{}, false
	}
	f := c.facts(e)
	e.refuseAttach(f)
	w := e.want
	if e.attaching != nil && !f.Driver.away() {
		w.Attach = e.attaching.verb
	}
	o, h := next(e.rec, w, f, time.Now())
	c.takeSlot(e, o, h)
	e.hold(h)
	if !h.until.IsZero() {
		c.lookAgain(e, h.until)
	}
	if o.verb == noVerb {
		return planned{}, false
	}
	var nodeID string
	if d := c.drivers[driverOf(e)]; d != nil {
		nodeID = d.NodeID
	}
	rec := begin(e.rec, w, o, nodeID)
	if o.verb == createVolume {
		c.names[rec.Name] = e.key // at once, because a namesake may be planned in the same step
	}
	return planned{e, o, rec}, true
}

// begin starts a step whose intent is durable. If err is set, the intent is not durable, and begin
// takes the step back.
func (c *Controller) begin(ctx context.Context, p planned, err error) {
	e := p.e
	if err != nil {
		if p.op.verb.limited() {
			c.releaseSlot(driverOf(e))
		}
		if p.op.verb == createVolume && e.rec.Name != p.rec.Name {
			delete(c.names, p.rec.Name)
		}
		e.hold(held{reason: err.Error()})
		if e.attaching != nil {
			e.answerAttach(nil, failure(p.op.verb, err))
		}
		return
	}
	c.setRecord(e, p.rec)
	if !p.op.verb.calls() {
		c.log.Info("claim changed without a call", "claim", e.key.String(), "op", p.op.verb.String())
		c.touch(e.key)
		return
	}
	e.doing, e.since = p.op, time.Now()
	c.start(ctx, e)
}

// lookAgain plans e at the given time unless it is planned before.
func (c *Controller) lookAgain(e *entry, at time.Time) {
	e.lookAgain(at, func() { c.post(func(context.Context) { c.touch(e.key) }) })
}
