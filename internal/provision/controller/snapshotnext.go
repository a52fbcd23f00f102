package controller

import (
	"fmt"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// snapshotVerb is the kind of a step for a snapshot.
type snapshotVerb uint8

const (
	noSnapshotVerb snapshotVerb = iota
	createSnapshot              // make it, or ask again whether it is ready
	listSnapshot                // look up one that a person named by its handle
	deleteSnapshot              // delete it
	// Steps without a call.
	adoptSnapshot // assume that one named by its handle is ready: its driver cannot list it
	dropSnapshot  // remove the record, which describes nothing that exists
	leaveSnapshot // remove the object, and leave its handle to the other records that have it
)

var snapshotVerbNames = [...]string{"", "CreateSnapshot", "ListSnapshots", "DeleteSnapshot", "adopt", "drop", "leave"}

func (v snapshotVerb) String() string { return snapshotVerbNames[v] }

// calls reports whether the verb is a call to the driver.
func (v snapshotVerb) calls() bool { return v != noSnapshotVerb && v < adoptSnapshot }

// snapshotOp is one step for a snapshot.
type snapshotOp struct {
	verb snapshotVerb
	// spec is what createSnapshot asks for, or what is known of one that a person named by its
	// handle.
	spec snapshotSpec
	// from is the phase before the step.
	from state.Phase
}

// snapshotFacts is what a decision about one snapshot depends on in addition to its record.
type snapshotFacts struct {
	Driver driverFacts
	// Busy says which call or snapshot delays a call for the source volume, or is "".
	Busy string
	// Used says what reads the snapshot and delays its deletion, or is "".
	Used string
	// Doubt is [facts].Doubt.
	Doubt bool
	// Namesake is another snapshot that has the name that this one would get, or "".
	Namesake string
	// Sharers are the other records of the driver's snapshot, and those that want it. If the record is
	// former and no handle is named, that is the snapshot of the earlier object.
	Sharers []sharer
}

// nextSnapshot returns the next step for a snapshot, or why there is none. w is nil if no source
// lists it.
func nextSnapshot(r snapshotRecord, w *Snapshot, f snapshotFacts, now time.Time) (snapshotOp, held) {
	switch {
	case f.Doubt && (r.Delete || r.Content.Phase == state.Leaving):
		return snapshotOp{}, doubted("snapshot", r.Snapshot)
	case r.former() && (w == nil || w.Handle == ""):
		return nextFormer(r, w, f)
	case r.Content.Phase == state.Leaving:
		return nextDeleteSnapshot(r, f, now)
	case r.Delete && r.Content.Phase == state.Absent:
		return snapshotOp{verb: dropSnapshot}, held{}
	case r.Delete && r.Content.Phase == state.Present:
		return nextDeleteSnapshot(r, f, now)
	case r.Delete: // it may exist, and only CreateSnapshot returns its handle
		return nextCreateSnapshot(r, f, now)
	case r.Content.Phase == state.Present:
		return nextReadySnapshot(r, w, f, now)
	case w == nil && r.Content.Phase == state.Entering:
		return snapshotOp{}, heldf("it was removed while snapshot %s was being made, which may exist; list it again, or "+
			"delete it", r.Name)
	case w == nil && !r.empty():
		return snapshotOp{verb: dropSnapshot}, held{}
	case w == nil:
		return snapshotOp{}, held{}
	case r.Content.Phase == state.Entering:
		return nextCreateSnapshot(r, f, now)
	}
	return nextNewSnapshot(r, *w, f, now)
}

// nextFormer keeps the record of an earlier object while another record has the driver's snapshot of it.
func nextFormer(r snapshotRecord, w *Snapshot, f snapshotFacts) (snapshotOp, held) {
	switch {
	case len(f.Sharers) == 0:
		return snapshotOp{verb: dropSnapshot}, held{}
	case w == nil:
		return snapshotOp{}, held{}
	}
	return snapshotOp{}, heldf("driver %s may have %s, which it made for an earlier snapshot of this name, since %s "+
		"names it: delete that, or give this one another name", r.Spec.Driver, r.Former, f.Sharers[0])
}

// nextNewSnapshot starts to make or look up a snapshot.
func nextNewSnapshot(r snapshotRecord, w Snapshot, f snapshotFacts, now time.Time) (snapshotOp, held) {
	switch {
	case w.Refused != "":
		return snapshotOp{}, refusedf("%s", w.Refused)
	case w.Waits != "":
		return snapshotOp{}, held{reason: w.Waits}
	case w.Handle == "" && w.naming.missing != "":
		return snapshotOp{}, held{reason: w.naming.missing}
	case f.Namesake != "":
		return snapshotOp{}, heldf("the name %s belongs to snapshot %s; two cannot have the same UID", w.snapshotName(),
			f.Namesake)
	case f.Driver.away():
		return snapshotOp{}, f.Driver.held()
	case !f.Driver.caps.Snapshot:
		return snapshotOp{}, heldf("driver %s cannot make snapshots (it has no CREATE_DELETE_SNAPSHOT)", w.Class.Driver)
	}
	s, problem := newSnapshotSpec(w)
	if problem != "" {
		return snapshotOp{}, held{reason: problem}
	}
	r.Spec = s
	if w.Handle != "" {
		if by, is := leavingOf(f.Sharers); is {
			return snapshotOp{}, heldf("%s of driver %s is being deleted, with %s", w.Handle, w.Class.Driver, by)
		}
		r.Handle = w.Handle
		return nextListSnapshot(r, f, now)
	}
	return nextCreateSnapshot(r, f, now)
}

// nextCreateSnapshot repeats the CreateSnapshot call until it has a definite answer.
func nextCreateSnapshot(r snapshotRecord, f snapshotFacts, now time.Time) (snapshotOp, held) {
	switch {
	case f.Driver.away():
		return snapshotOp{}, f.Driver.held()
	case !f.Driver.caps.Snapshot:
		return snapshotOp{}, heldf("driver %s cannot make snapshots (it has no CREATE_DELETE_SNAPSHOT)", r.Spec.Driver)
	}
	return snapshotOp{verb: createSnapshot, spec: r.Spec, from: r.Content.Phase}.ifDue(r.Content.Retry(), f, now)
}

// nextListSnapshot looks up a snapshot by its handle.
func nextListSnapshot(r snapshotRecord, f snapshotFacts, now time.Time) (snapshotOp, held) {
	if !f.Driver.caps.ListSnapshots {
		return snapshotOp{verb: adoptSnapshot, spec: r.Spec, from: r.Content.Phase}, held{}
	}
	return snapshotOp{verb: listSnapshot, spec: r.Spec, from: r.Content.Phase}.ifDue(r.Content.Retry(), f, now)
}

// nextReadySnapshot asks, with pauses, whether an existing snapshot is ready (CSI 1.13
// CreateSnapshot: by ListSnapshots, or by repeating the call).
func nextReadySnapshot(r snapshotRecord, w *Snapshot, f snapshotFacts, now time.Time) (snapshotOp, held) {
	if w != nil && r.mismatch(*w) != "" {
		return snapshotOp{}, refusedf("%s", r.mismatch(*w))
	}
	switch {
	case r.Ready:
		return snapshotOp{}, held{}
	case f.Driver.away():
		return snapshotOp{}, f.Driver.held()
	case f.Driver.caps.ListSnapshots || r.Spec.Volume == "":
		return nextListSnapshot(r, f, now)
	}
	return nextCreateSnapshot(r, f, now)
}

// nextDeleteSnapshot repeats the DeleteSnapshot call until it has a definite answer. If another
// record has the driver's snapshot, only the record goes.
func nextDeleteSnapshot(r snapshotRecord, f snapshotFacts, now time.Time) (snapshotOp, held) {
	fate, by := r.sharer().fateOf(f.Sharers)
	switch {
	case f.Used != "" && r.Content.Phase == state.Present:
		return snapshotOp{}, held{reason: f.Used}
	case fate == stays:
		return snapshotOp{verb: leaveSnapshot}, held{}
	case fate == waits:
		return snapshotOp{}, by.heldBy()
	case f.Driver.away():
		return snapshotOp{}, f.Driver.held()
	case !f.Driver.caps.Snapshot:
		return snapshotOp{}, heldf("driver %s cannot delete snapshots (it has no CREATE_DELETE_SNAPSHOT)", r.Spec.Driver)
	}
	return snapshotOp{verb: deleteSnapshot, spec: r.Spec, from: r.Content.Phase}.ifDue(r.Content.Retry(), f, now)
}

// ifDue returns o, or why it is not due: an earlier failure, or calls in flight.
func (o snapshotOp) ifDue(r state.Retry, f snapshotFacts, now time.Time) (snapshotOp, held) {
	switch h := paused(r, "the driver, the snapshot or its class", now); {
	case h.waits():
		return snapshotOp{}, h
	case o.verb == createSnapshot && f.Busy != "":
		return snapshotOp{}, held{reason: f.Busy}
	case o.verb == createSnapshot && f.Driver.Full:
		return snapshotOp{}, waitForSlot()
	}
	return o, held{}
}

// snapshotResult is the outcome of a call.
type snapshotResult struct {
	// err is nil if the driver answered OK. unsent means that nothing reached the driver.
	err    *state.CallError
	unsent bool
	// made is the checked answer to createSnapshot and listSnapshot.
	made madeSnapshot
	// shared means that others have or want the driver's snapshot. A deletion could not wait for them any more.
	shared bool
}

// madeSnapshot is a driver's answer about a snapshot.
type madeSnapshot struct {
	handle    string
	volume    string // the source_volume_id, for a snapshot of a group
	sizeBytes int64
	created   time.Time
	ready     bool
	// consistency is set if a freeze was asked for.
	consistency Consistency
}

// beginSnapshot returns the record that must be durable before o starts.
func beginSnapshot(r snapshotRecord, w *Snapshot, o snapshotOp) snapshotRecord {
	if w != nil && (r.empty() || o.verb == createSnapshot && o.from == state.Absent) {
		r.Snapshot, r.UID, r.Name = w.Key, w.UID, w.snapshotName()
	}
	switch o.verb {
	case createSnapshot:
		r.Spec = o.spec
		if r.Content.Phase == state.Absent {
			r.Content.Phase = state.Entering
		}
	case listSnapshot:
		if r.Spec = o.spec; o.from == state.Absent {
			r.Handle = w.Handle // as it is named now
		}
	case adoptSnapshot:
		if o.from == state.Absent {
			r.Handle = w.Handle
		}
		r.Spec, r.Ready, r.Content = o.spec, true, state.Fact{Phase: state.Present}
	case deleteSnapshot:
		r.Content.Phase = state.Leaving
	case dropSnapshot:
		r = snapshotRecord{}
	case leaveSnapshot:
		r = r.left(true)
	case noSnapshotVerb:
	default:
		panic(fmt.Sprintf("beginSnapshot: verb %d", o.verb))
	}
	return r
}

// completeSnapshot returns the record after o ended with res. It is empty if nothing is left.
func completeSnapshot(r snapshotRecord, o snapshotOp, res snapshotResult, now time.Time) snapshotRecord {
	if res.err != nil {
		if o.verb == createSnapshot && o.from == state.Absent && (res.unsent || makesNothing(res.err)) {
			r.Content.Phase = state.Absent
		}
		r.Content.Failed = addFailure(r.Content.Retry(), res.err, now).Kept()
		return r
	}
	if o.verb == deleteSnapshot {
		return r.left(res.shared)
	}
	r.Handle, r.SizeBytes, r.Created, r.Ready = res.made.handle, res.made.sizeBytes, res.made.created, res.made.ready
	r.Content = state.Fact{Phase: state.Present}
	if o.verb == createSnapshot && o.from != state.Present {
		r.Consistency = res.made.consistency
	}
	if r.Ready {
		r.Looks = 0
		return r
	}
	r.Looks++
	r.Content.Failed = awaitReady(r.Looks, now)
	return r
}

// awaitReady returns the pause before the driver is asked again whether a snapshot is ready, after
// looks "not ready" answers: its upload takes from seconds to hours.
func awaitReady(looks int, now time.Time) *state.Retry {
	pause := min(backoff(looks, state.Failed), time.Minute)
	return &state.Retry{Attempts: looks, Since: now, NotBefore: now.Add(pause)}
}
