package controller

import (
	"cmp"
	"context"
	"crypto/rand"
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
	row[record]
	want want
	// doing is the call in flight, if any, to the driver that the record names.
	doing op
	// attaching is the caller of Attach or Detach that waits, or nil.
	attaching *attachCall

	// queued is the driver for whose slot the claim waits, granted the driver that has just given
	// it one; or "".
	queued, granted state.DriverName
}

// id returns the id of the claim's volume, or "" if it is unknown.
func (e *entry) id() state.VolumeID {
	if e.rec.Handle == "" {
		return ""
	}
	return state.SharedID(e.rec.Spec.Driver, e.rec.Handle)
}

func (e *entry) gone() bool {
	return e.rec.empty() && !e.rec.Delete && !e.want.Listed && !e.unsaved &&
		e.doing.verb == noVerb && e.attaching == nil && e.unreadable == ""
}

func (e *entry) hidden() bool { return false }

func (e *entry) wantedName() string {
	if !e.want.Listed {
		return ""
	}
	return e.want.Claim.volumeName()
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
	c.claims.stopTimers()
	c.snapshots.stopTimers()
	c.groups.stopTimers()
	for _, d := range c.drivers {
		d.stopTimer()
	}
	c.calls.Wait()
}

// load reads the journal.
func (c *Controller) load(ctx context.Context) error {
	err := claimBucket().load(ctx, c.cfg, func(key Key, rec record, unreadable string) {
		e := c.claims.entry(key)
		e.unreadable, e.old = unreadable, rec.Delete || rec.Volume.Phase == state.Leaving
		c.setRecord(e, rec)
		c.claims.touch(key)
	})
	if err != nil {
		return err
	}
	err = snapshotBucket().load(ctx, c.cfg, func(key Key, rec snapshotRecord, unreadable string) {
		e := c.snapshots.entry(key)
		e.unreadable, e.old = unreadable, rec.Delete || rec.Content.Phase == state.Leaving
		c.snapshots.set(e, rec)
		c.snapshots.touch(key)
	})
	if err != nil {
		return err
	}
	// Groups come last, because they add their snapshots to those of the journal.
	err = groupBucket().load(ctx, c.cfg, func(key Key, rec groupRecord, unreadable string) {
		e := c.groups.entry(key)
		e.unreadable, e.old = unreadable, rec.Delete || rec.Content.Phase == state.Leaving
		c.setGroup(e, rec)
		c.touchRows(e)
	})
	if err != nil {
		return err
	}
	if err := c.loadAttachments(ctx); err != nil {
		return err
	}
	c.publishClaims(slices.Collect(maps.Keys(c.claims.dirty)))
	c.publishSnapshots(slices.Collect(maps.Keys(c.snapshots.dirty)))
	c.publishGroups(slices.Collect(maps.Keys(c.groups.dirty)))
	close(c.view.loaded)
	return nil
}

// setRecord replaces e's record and updates the indexes.
func (c *Controller) setRecord(e *entry, rec record) {
	old := e.rec
	e.rec = rec
	c.claims.rename(e.key, old.Name, rec.Name)
	if old.Handle != "" && old.Handle != rec.Handle {
		delete(c.handles, state.SharedID(old.Spec.Driver, old.Handle))
	}
	if id := e.id(); id != "" {
		c.handles[id] = e.key
	}
	if old.NodeID != rec.NodeID || old.Handle != rec.Handle {
		c.nodeIDs.set(old.Spec.Driver, old.Handle, "")
		c.nodeIDs.set(rec.Spec.Driver, rec.Handle, rec.NodeID)
	}
	if rec.Spec.Source.Volume != "" {
		c.addClone(rec.Spec.Source.Claim, e.key)
	}
	if old.Volume.Phase == rec.Volume.Phase {
		return
	}
	for _, key := range c.clonesOf(e.key) {
		c.claims.touch(key)
	}
}

// touchSource plans the claim or the snapshot that a volume is made from, whose deletion may wait
// for that.
func (c *Controller) touchSource(from source) {
	if from.Claim != (Key{}) {
		c.claims.touch(from.Claim)
	}
	if from.Snapshot == "" {
		return
	}
	for key, s := range c.snapshots.entries {
		switch {
		case s.rec.Handle != from.Snapshot:
		case s.group != nil:
			c.touchRows(s.group)
		default:
			c.snapshots.touch(key)
		}
	}
}

// stepAll takes steps until no row is dirty.
func (c *Controller) stepAll(ctx context.Context) {
	for ctx.Err() == nil && len(c.claims.dirty)+len(c.snapshots.dirty)+len(c.groups.dirty) > 0 {
		c.stepClaims(ctx)
		c.stepGroups(ctx) // before snapshots, whose status includes that of their group
		c.stepSnapshots(ctx)
	}
}

// stepClaims takes the steps of the claims until none is dirty.
func (c *Controller) stepClaims(ctx context.Context) {
	claims := stepper[*entry, record, op]{
		table: &c.claims, bucket: claimBucket(),
		row:  func(e *entry) *row[record] { return &e.row },
		plan: c.plan, begin: c.begin,
		saved: func(e *entry) {
			c.touchSnapshotsOf(e.id())
			c.touchSource(e.rec.Spec.Source)
		},
	}
	for len(c.claims.dirty) > 0 && ctx.Err() == nil {
		c.publishClaims(claims.step(ctx, c))
	}
}

// plan decides the next step for e.
func (c *Controller) plan(e *entry) (o op, rec record, ok bool) {
	if e.doing.verb != noVerb {
		return op{}, record{}, false // finish plans it again
	}
	e.stopTimer()
	if snap, ok := c.snapshots.inFlight[e.id()]; ok {
		// releaseVolume plans it again
		e.hold(heldf("volume %s: CreateSnapshot for snapshot %s is in flight", e.rec.Name, snap.snapshot))
		return op{}, record{}, false
	}
	if e.unreadable != "" {
		e.hold(heldf("its record cannot be read, so its volume is not touched: %s", e.unreadable).on(state.BadRecord, ""))
		return op{}, record{}, false
	}
	f := c.facts(e)
	e.refuseAttach(f)
	w := e.want
	f.Namesake = c.setNumber(e, &w.Claim)
	if e.attaching != nil && !f.Driver.away() {
		w.Attach = e.attaching.verb
	}
	o, h := next(e.rec, w, f, time.Now())
	c.takeSlot(e, o, h)
	e.hold(h)
	if !h.until.IsZero() {
		planAt(c, &c.claims, &e.row, h.until)
	}
	if o.verb == noVerb {
		return op{}, record{}, false
	}
	var nodeID string
	if d := c.drivers[driverOf(e)]; d != nil {
		nodeID = d.NodeID
	}
	rec = begin(e.rec, w, o, nodeID)
	if o.verb == createVolume && e.rec.Volume.Phase == state.Absent {
		rec.Mark = cmp.Or(rec.Mark, rand.Text())
	}
	if o.verb == createVolume {
		c.claims.names[rec.Name] = e.key // at once, because a namesake may be planned in the same step
	}
	return o, rec, true
}

// begin starts a step whose intent is durable. If err is set, the intent is not durable, and begin
// takes the step back.
func (c *Controller) begin(ctx context.Context, e *entry, o op, rec record, err error) {
	if err != nil {
		if o.verb.limited() {
			c.releaseSlot(driverOf(e))
		}
		if o.verb == createVolume && e.rec.Name != rec.Name {
			delete(c.claims.names, rec.Name)
		}
		e.hold(held{reason: err.Error()})
		if e.attaching != nil {
			e.answerAttach(nil, failure(o.verb.String(), err))
		}
		return
	}
	c.setRecord(e, rec)
	if !o.verb.calls() {
		c.log.Info("claim changed without a call", "claim", e.key.String(), "op", o.verb.String())
		c.claims.touch(e.key)
		return
	}
	e.doing, e.since = o, time.Now()
	c.start(ctx, e)
}
