package controller

import (
	"fmt"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Snapshots returns every snapshot that is listed or has a record, sorted by namespace and name.
func (c *Controller) Snapshots() []SnapshotStatus {
	return list(&c.view, c.view.snapshots)
}

// Snapshot returns the status of one snapshot, and whether it exists.
func (c *Controller) Snapshot(key Key) (SnapshotStatus, bool) {
	return lookUp(&c.view, c.view.snapshots, key)
}

func (e *snapshotEntry) status() SnapshotStatus {
	r := e.rec
	s := SnapshotStatus{
		Snapshot: e.key, UID: r.UID, Phase: e.phase(), Class: r.Spec.Class, Driver: r.Spec.Driver, Claim: r.Spec.Claim,
		Handle: r.Handle, SizeBytes: r.SizeBytes, Created: r.Created, Ready: r.usable() && e.mismatch() == "",
		ReclaimPolicy: r.Spec.Reclaim, Consistency: r.Consistency, Volume: r.source(), Mark: r.Spec.Mark,
		Call: e.doing.verb.String(), Since: e.since, Retry: r.Content.Retry(),
	}
	if g := e.group; g != nil {
		s.Group, s.Call, s.Retry = g.key, g.doing.call(), g.rec.Content.Retry()
	} else if e.listed && r.Content.Phase == state.Absent {
		s.UID, s.Class, s.Driver, s.Claim = e.want.UID, e.want.Class.Name, e.want.Class.Driver, e.want.Claim
	}
	if r.Content.Phase == state.Present {
		s.Content = r.contentName()
	}
	if s.Call == "" {
		s.Reason, s.Until, s.Refused = e.held.reason, e.held.until, e.held.refused
		if s.Doubted = e.held.cause.Code == state.RecordsLost; s.Doubted {
			s.Retry = state.Retry{}
		}
	}
	return s
}

func (e *snapshotEntry) phase() Phase {
	switch {
	case e.rec.Delete:
		return Deleting
	case e.group == nil && !e.listed, e.group != nil && !e.group.listed:
		return Released
	case e.rec.usable() && e.mismatch() == "":
		return Ready
	}
	return Pending
}

// factsOfSnapshot collects what nextSnapshot needs to know about e.
func (c *Controller) factsOfSnapshot(e *snapshotEntry) snapshotFacts {
	f := snapshotFacts{
		Driver: c.snapshotDriver(e.driver()), Busy: c.busy(e.source()), Namesake: c.snapshots.namesake(e.key, e),
		Doubt: e.old && c.lost(),
	}
	own := func(s *snapshotEntry) bool { return s == e }
	switch {
	case e.rec.Delete:
		f.Used, f.Sharers = c.usedBy(e), c.sharersOf(e.rec.handleOf(), own)
	case e.rec.former() && e.want.Handle == "":
		f.Sharers = c.sharersOf(e.rec.formerOf(), own)
	case e.listed && e.rec.Content.Phase == state.Absent:
		f.Sharers = c.sharersOf(e.want.wantedHandle(), own)
	}
	return f
}

// snapshotDriver returns the facts about a driver that makes or deletes snapshots.
func (c *Controller) snapshotDriver(name state.DriverName) driverFacts {
	d := c.drivers[name]
	if d == nil {
		return driverFacts{Problem: c.absence(name).Problem}
	}
	c.ensureAsked(d)
	inFlight := 0
	for _, snap := range c.snapshots.inFlight {
		if snap.driver == name {
			inFlight++
		}
	}
	return driverFacts{Problem: d.problem(), Asking: d.asking(), Full: inFlight >= c.cfg.MaxCalls, caps: d.caps}
}

// busy says why no snapshot of the volume may be made now, or returns "".
func (c *Controller) busy(id state.VolumeID) string {
	claim := c.claims.entries[c.handles[id]]
	switch {
	case id == "":
	case c.snapshots.foreign[id] > 0:
		return "its volume is being attached or detached"
	case claim != nil && claim.doing.verb != noVerb:
		return fmt.Sprintf("%s for claim %s is in flight", claim.doing.verb, claim.key)
	case claim != nil && claim.unsaved: // after a crash, the volume would be unknown
		return fmt.Sprintf("the record of claim %s is not written yet", claim.key)
	}
	if snap, ok := c.snapshots.inFlight[id]; ok && id != "" {
		return fmt.Sprintf("CreateSnapshot for snapshot %s of the same volume is in flight", snap.snapshot)
	}
	return ""
}

// usedBy says what reads one of the snapshots and delays their deletion, or returns "". A claim
// whose volume is not being made yet does not delay it; its status says that the snapshot is being
// deleted.
func (c *Controller) usedBy(all ...*snapshotEntry) string {
	for _, e := range all {
		if claim := c.restoring(e, false); claim != "" {
			return fmt.Sprintf("the volume of claim %s is being made of it", claim)
		}
		if c.snapshots.reading[e.key] > 0 {
			return fmt.Sprintf("the blocks of snapshot %s are being read (snapshot diff): it is deleted when that ends", e.key)
		}
	}
	return ""
}

// restoring returns the claim whose volume is being made from the snapshot, may be, or is made but
// not yet in the journal; with wanted also a claim that will be made from it. It returns "" if
// there is none.
func (c *Controller) restoring(e *snapshotEntry, wanted bool) string {
	for key, claim := range c.claims.entries {
		wants := wanted && claim.want.Listed && claim.want.Claim.reads(e)
		makes := e.rec.Handle != "" && claim.makesFrom(source{Snapshot: e.rec.Handle}) &&
			claim.rec.Spec.Driver == e.rec.Spec.Driver
		made := claim.rec.Volume.Phase == state.Present && !claim.unsaved
		if !made && (wants || makes) {
			return key.String()
		}
	}
	return ""
}

// reads reports whether the claim names the snapshot as its source, by its name or by its handle.
func (c Claim) reads(e *snapshotEntry) bool {
	switch from := c.Source; {
	case from == nil:
		return false
	case from.SnapshotHandle != "":
		return from.Denied == "" && from.SnapshotHandle == e.rec.Handle && c.Class.Provisioner == e.rec.Spec.Driver
	}
	return c.Source.Snapshot == e.key
}

// deletionBlocker says which snapshot delays the deletion of e's volume, and why, or returns "". It
// is one that is being made, may be, or is not ready yet: until then, the driver may read the
// volume. A snapshot that is not yet in the journal also counts, because after a crash it would be
// requested again, from a volume that is gone.
func (c *Controller) deletionBlocker(e *entry) string {
	for key, g := range c.groups.entries {
		if e.id() != "" && slices.Contains(g.unsavedVolumes, e.id()) {
			return fmt.Sprintf("group snapshot %s of volume %s has a record that is not written yet", key, e.rec.Name)
		}
	}
	var first Key // the smallest key, so that the answer does not vary
	for key, s := range c.snapshots.entries {
		is := e.id() != "" && s.rec.source() == e.id() && s.reading() != ""
		if is && (first == Key{} || key.compare(first) < 0) {
			first = key
		}
	}
	if first == (Key{}) {
		return ""
	}
	s := c.snapshots.entries[first]
	listed, goes := s.listed, s.rec.Delete
	if s.group != nil {
		listed, goes = s.group.listed, s.group.rec.Delete
	}
	return fmt.Sprintf("snapshot %s of volume %s %s%s", first, e.rec.Name, s.reading(), unlistedNote(listed || goes))
}

// unlistedNote completes the reason of something that waits for an unfinished object: if its owner
// neither lists nor deletes that object, nothing completes it.
func unlistedNote(wanted bool) string {
	if wanted {
		return ""
	}
	return ", and is no longer listed: list it again, or delete it"
}

// reading says why a driver may still read the snapshot's volume, or returns "".
func (e *snapshotEntry) reading() string {
	switch content := e.rec.Content; {
	case content.Phase == state.Entering:
		return "is being made"
	case content.Phase == state.Present && !e.rec.Ready && !e.rec.Delete:
		return "is made and not ready yet"
	case e.unsaved, e.group != nil && e.group.unsaved:
		return "has a record that is not written yet"
	}
	return ""
}

// snapshotSource finds the snapshot that claim will be made from.
func (c *Controller) snapshotSource(claim Claim) sourceFacts {
	key := claim.Source.Snapshot
	e := c.snapshots.entries[key]
	var problem string
	switch {
	case e == nil || e.rec.Content.Phase != state.Present && !e.rec.Delete:
		problem = fmt.Sprintf("its source, snapshot %s, was not found", key)
	case e.rec.Delete:
		problem = fmt.Sprintf("its source, snapshot %s, is being deleted", key)
	case e.mismatch() != "":
		problem = fmt.Sprintf("its source, snapshot %s, does not match: %s", key, e.mismatch())
	case !e.rec.Ready:
		problem = fmt.Sprintf("its source, snapshot %s, is not ready yet", key)
	case e.rec.Spec.Driver != claim.Class.Provisioner:
		problem = fmt.Sprintf("its source, snapshot %s, is of driver %s, not %s", key, e.rec.Spec.Driver,
			claim.Class.Provisioner)
	case e.rec.Spec.Mode != "" && e.rec.Spec.Mode != claim.Mode:
		problem = fmt.Sprintf("it asks for volumeMode %s, and snapshot %s is of a volume of mode %s", claim.Mode, key,
			e.rec.Spec.Mode)
	case claim.SizeBytes < e.rec.SizeBytes:
		problem = fmt.Sprintf("it asks for %d bytes, and snapshot %s needs a volume of at least %d", claim.SizeBytes, key,
			e.rec.SizeBytes)
	default:
		return sourceFacts{Handle: e.rec.Handle}
	}
	return sourceFacts{Problem: problem}
}
