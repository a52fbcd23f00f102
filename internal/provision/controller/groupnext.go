package controller

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// groupVerb is the kind of a step for a group snapshot.
type groupVerb uint8

const (
	noGroupVerb groupVerb = iota
	createGroup           // make it, or learn what an earlier call made
	getGroup              // ask whether it is ready
	deleteGroup           // delete its snapshots
	// A step without a call.
	dropGroup // remove the record, which describes nothing that exists
)

// call returns the name of the CSI call, or "" for a step without one. each is [groupSpec.Each].
func (v groupVerb) call(each bool) string {
	switch {
	case v == createGroup && each, v == getGroup && each:
		return createSnapshot.String()
	case v == deleteGroup && each:
		return deleteSnapshot.String()
	case v == createGroup:
		return "CreateVolumeGroupSnapshot"
	case v == getGroup:
		return "GetVolumeGroupSnapshot"
	case v == deleteGroup:
		return "DeleteVolumeGroupSnapshot"
	}
	return ""
}

// groupOp is one step for a group snapshot.
type groupOp struct {
	verb    groupVerb
	spec    groupSpec
	members []groupMember
	// from is the phase before the step.
	from state.Phase
}

func (o groupOp) call() string { return o.verb.call(o.spec.Each) }

// groupFacts is what a decision about one group snapshot depends on in addition to its record.
type groupFacts struct {
	Driver driverFacts
	// Busy says which call or snapshot delays a call for a source volume, or is "".
	Busy string
	// Used says what reads one of its snapshots and delays its deletion, or is "".
	Used string
	// Doubt is [facts].Doubt.
	Doubt bool
	// Namesake is another group snapshot that has the name that this one would get, or "".
	Namesake string
	// Taken is another snapshot that has the name that one of its snapshots would get, or "".
	Taken string
	// Sharers are other records of its snapshots.
	Sharers []sharer
}

// nextGroup returns the next step for a group snapshot, or why there is none. w is nil if no source
// lists it.
func nextGroup(r groupRecord, w *Group, f groupFacts, now time.Time) (groupOp, held) {
	switch phase := r.Content.Phase; {
	case f.Doubt && (r.Delete || phase == state.Leaving):
		return groupOp{}, doubted("groupsnapshot", r.Group)
	case phase == state.Leaving, r.Delete && phase == state.Present:
		return nextDeleteGroup(r, f, now)
	case r.Delete && phase == state.Absent:
		return groupOp{verb: dropGroup}, held{}
	case r.Delete: // snapshots may exist, and only the same call returns their handles
		return nextCreateGroup(r, f, now)
	case phase == state.Present:
		return nextGetGroup(r, w, f, now)
	case w == nil && phase == state.Entering:
		return groupOp{}, heldf("it was removed while group snapshot %s was being made, which may exist; list it again, or "+
			"delete it", r.Name)
	case w == nil && !r.empty():
		return groupOp{verb: dropGroup}, held{}
	case w == nil:
		return groupOp{}, held{}
	case phase == state.Entering:
		return nextCreateGroup(r, f, now)
	}
	return nextNewGroup(r, *w, f, now)
}

// nextNewGroup starts to make a group snapshot.
func nextNewGroup(r groupRecord, w Group, f groupFacts, now time.Time) (groupOp, held) {
	each := w.Handle == "" && !f.Driver.caps.Group
	switch {
	case w.Refused != "":
		return groupOp{}, refusedf("%s", w.Refused)
	case w.Waits != "":
		return groupOp{}, held{reason: w.Waits}
	case len(w.members()) == 0:
		return groupOp{}, refusedf("it has no volumes")
	case len(w.members()) > MaxMembers:
		return groupOp{}, refusedf("it has %d volumes; a group snapshot can have at most %d", len(w.members()), MaxMembers)
	case w.Handle == "" && w.naming.missing != "":
		return groupOp{}, held{reason: w.naming.missing}
	case f.Namesake != "":
		return groupOp{}, heldf("the name %s belongs to group snapshot %s; two cannot have the same UID", w.groupName(),
			f.Namesake)
	case f.Driver.away():
		return groupOp{}, f.Driver.held()
	case each && !f.Driver.caps.Snapshot:
		return groupOp{}, heldf("driver %s cannot make snapshots (it has neither "+
			"CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT nor CREATE_DELETE_SNAPSHOT)", w.Class.Driver)
	case w.Handle != "" && !f.Driver.caps.Group:
		return groupOp{}, heldf("driver %s does not support group snapshots (it has no "+
			"CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT)", w.Class.Driver)
	case each && w.Freeze == 0:
		return groupOp{}, refusedf("driver %s does not support group snapshots (it has no "+
			"CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT): set the group snapshot's annotation csi-volmgr.dev/freeze, for example "+
			"to 10s, to freeze the file systems of its volumes while the driver makes a snapshot of each", w.Class.Driver)
	case f.Taken != "":
		return groupOp{}, refusedf("snapshot %s exists already, and a snapshot of this group needs its name: delete it, or "+
			"give the group another name", f.Taken)
	}
	s, problem := newGroupSpec(w, each)
	if problem != "" {
		return groupOp{}, refusedf("%s", problem)
	}
	r.Spec, r.Members = s, w.members()
	if w.Handle != "" {
		o := groupOp{verb: getGroup, spec: r.Spec, members: r.Members, from: r.Content.Phase}
		return o.ifDue(r.Content.Retry(), f, now)
	}
	return nextCreateGroup(r, f, now)
}

// members returns the snapshots that g asks for: those of its claims, or those that a person named
// by their handles, which are named after their position in the list.
func (g Group) members() []groupMember {
	var all []groupMember
	for _, m := range g.Members {
		all = append(all, groupMember{Claim: m.Claim, Volume: m.Volume, Mode: m.Mode, Snapshot: g.Name + "-" + m.Claim.Name})
	}
	for i, handle := range g.Handles {
		all = append(all, groupMember{Handle: handle, Snapshot: fmt.Sprintf("%s-%d", g.Name, i+1)})
	}
	return all
}

// nextCreateGroup makes the snapshots, or repeats the call until it is known what was made.
func nextCreateGroup(r groupRecord, f groupFacts, now time.Time) (groupOp, held) {
	o := groupOp{verb: createGroup, spec: r.Spec, members: r.Members, from: r.Content.Phase}
	return o.ifDue(r.Content.Retry(), f, now)
}

// nextGetGroup asks, with pauses, whether existing snapshots are ready.
func nextGetGroup(r groupRecord, w *Group, f groupFacts, now time.Time) (groupOp, held) {
	switch {
	case w != nil && r.mismatch(*w) != "":
		return groupOp{}, refusedf("%s", r.mismatch(*w))
	case r.ready():
		return groupOp{}, held{}
	}
	o := groupOp{verb: getGroup, spec: r.Spec, members: r.Members, from: r.Content.Phase}
	return o.ifDue(r.Content.Retry(), f, now)
}

// nextDeleteGroup repeats the deletion of the snapshots until it has a definite answer.
func nextDeleteGroup(r groupRecord, f groupFacts, now time.Time) (groupOp, held) {
	if f.Used != "" && r.Content.Phase == state.Present {
		return groupOp{}, held{reason: f.Used}
	}
	switch fate, by := r.sharer().fateOf(f.Sharers); fate {
	case stays:
		return groupOp{verb: dropGroup}, held{}
	case waits:
		return groupOp{}, by.heldBy()
	case goes:
	}
	again := r.Content.Retry()
	if again.Call != "" && again.Call != deleteGroup.call(r.Spec.Each) {
		again = state.Retry{} // the failure of a snapshot does not delay the deletion of the others
	}
	o := groupOp{verb: deleteGroup, spec: r.Spec, members: r.Members, from: r.Content.Phase}
	return o.ifDue(again, f, now)
}

// ifDue returns o, or why it is not due: the driver, an earlier failure, or calls in flight.
func (o groupOp) ifDue(r state.Retry, f groupFacts, now time.Time) (groupOp, held) {
	able, missing := f.Driver.caps.Group, "CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT"
	if o.spec.Each {
		able, missing = f.Driver.caps.Snapshot, "CREATE_DELETE_SNAPSHOT"
	}
	switch h := paused(r, "the driver, the group snapshot or its class", now); {
	case f.Driver.away():
		return groupOp{}, f.Driver.held()
	case !able:
		return groupOp{}, heldf("driver %s no longer supports this (it has no %s)", o.spec.Driver, missing)
	case h.waits():
		return groupOp{}, h
	case o.reservesVolumes() && f.Busy != "":
		return groupOp{}, held{reason: f.Busy}
	case o.reservesVolumes() && f.Driver.Full:
		return groupOp{}, waitForSlot()
	}
	return o, held{}
}

// reservesVolumes reports whether the volumes get no other call while o is in flight.
func (o groupOp) reservesVolumes() bool {
	return o.verb == createGroup || o.verb == getGroup && o.spec.Each
}

// groupResult is the outcome of a call for the group, or of one call for each snapshot.
type groupResult struct {
	// err is nil if all answers were OK, else the first error. unsent means that nothing reached
	// the driver.
	err    *state.CallError
	unsent bool
	// handle and created are the driver's answer about the group.
	handle  string
	created time.Time
	// expired means that a freeze had expired before all answers arrived.
	expired bool
	// members are the answers, in the order of the operation's members; nil if a group call failed.
	members []memberResult
}

// memberResult is the outcome of the call for one snapshot.
type memberResult struct {
	// unasked means that no call was necessary.
	unasked bool
	err     *state.CallError
	made    madeSnapshot
}

// beginGroup returns the record that must be durable before o starts.
func beginGroup(r groupRecord, w *Group, o groupOp) groupRecord {
	if o.verb == dropGroup {
		return groupRecord{}
	}
	if w != nil && (r.empty() || o.verb == createGroup && o.from == state.Absent) {
		r.Group, r.UID, r.Name = w.Key, w.UID, w.groupName()
	}
	r.Members = slices.Clone(o.members)
	switch o.verb {
	case createGroup:
		r.Spec, r.Content.Phase = o.spec, state.Entering
		if o.from == state.Absent {
			r.Handle = ""
			r.setPhase(state.Entering)
		}
	case deleteGroup:
		r.Content.Phase = state.Leaving
		for i, m := range r.Members {
			if m.Phase != state.Absent {
				r.Members[i].Phase = state.Leaving
			}
		}
	case getGroup:
		if r.Spec = o.spec; o.from == state.Absent {
			r.Handle = w.Handle // as it is named now
		}
	case noGroupVerb, dropGroup:
	}
	return r
}

// setPhase sets the phase of every member. It writes to r.Members, which r must not share.
func (r groupRecord) setPhase(p state.Phase) {
	for i := range r.Members {
		r.Members[i].Phase = p
	}
}

// completeGroup returns the record after o ended with res. It is empty if nothing is left.
func completeGroup(r groupRecord, o groupOp, res groupResult, now time.Time) groupRecord {
	r.Members = slices.Clone(r.Members)
	if res.err != nil {
		r.Content.Failed = addFailure(r.Content.Retry(), res.err, now).Kept()
	}
	switch {
	case o.verb == deleteGroup:
		return completeDeleteGroup(r, res)
	case o.verb == createGroup && o.from == state.Absent && (res.unsent || res.members == nil && makesNothing(res.err)):
		r.setPhase(state.Absent)
	case res.members == nil: // failed, and what was made is unknown
	default:
		for i, m := range res.members {
			r.Members[i] = completeMember(r.Members[i], o, m)
		}
	}
	switch {
	case o.verb == getGroup && o.from == state.Absent && res.err == nil: // an existing one, named by its handle
		r.Content.Phase, r.Created = state.Present, res.created
	case o.verb != createGroup:
	case r.anyMember(state.Entering):
	case !r.anyMember(state.Present):
		r.Content.Phase, r.Members = state.Absent, nil
	case r.anyMember(state.Absent): // all or none
		r.Content.Phase = state.Leaving
	default:
		r.Content.Phase, r.Handle = state.Present, res.handle
		r.Created, r.Consistency = cmp.Or(res.created, r.Members[0].Created), o.consistency(res.expired)
	}
	return paceLook(r, res, now)
}

// consistency returns the consistency of snapshots made by o. If the answer to an earlier call was
// lost, that call may have made them when nothing was frozen any more.
func (o groupOp) consistency(expired bool) Consistency {
	switch {
	case o.spec.Freeze == 0:
		return ""
	case !expired && o.from == state.Absent:
		return Frozen
	case o.spec.Each:
		return Apart
	}
	return Crash
}

func completeMember(m groupMember, o groupOp, res memberResult) groupMember {
	switch {
	case res.unasked:
	case res.err == nil:
		m.Phase, m.Volume = state.Present, cmp.Or(m.Volume, res.made.volume)
		m.Handle, m.SizeBytes, m.Created, m.Ready = res.made.handle, res.made.sizeBytes, res.made.created, res.made.ready
	case o.from == state.Absent && makesNothing(res.err):
		m.Phase = state.Absent
	}
	return m
}

// paceLook sets the pause before the next question if the snapshots exist but are not ready.
func paceLook(r groupRecord, res groupResult, now time.Time) groupRecord {
	switch {
	case r.Content.Phase != state.Present || res.err != nil:
	case r.ready():
		r.Looks, r.Content.Failed = 0, nil
	default:
		r.Looks++
		r.Content.Failed = awaitReady(r.Looks, now)
	}
	return r
}

// completeDeleteGroup returns the record after a deletion: of everything, because a person asked
// for it, or of the snapshots that were made while others failed.
func completeDeleteGroup(r groupRecord, res groupResult) groupRecord {
	for i := range r.Members {
		gone := res.err == nil
		if res.members != nil {
			gone = res.members[i].unasked || res.members[i].err == nil
		}
		if gone {
			r.Members[i].Phase, r.Members[i].Handle = state.Absent, ""
		}
	}
	switch {
	case r.anyMember(state.Leaving):
		return r
	case r.Delete:
		return groupRecord{}
	}
	r.Content.Phase, r.Members = state.Absent, nil
	return r
}
