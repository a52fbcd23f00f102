package plan

import (
	"maps"
	"slices"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Result is the outcome of a call and of the look at the kernel after it.
type Result struct {
	// Err is nil for success. Of outcome [state.Partly] it comes with a success, and says what is missing.
	Err *state.CallError
	// PublishContext is what Attach returned.
	PublishContext map[string]string
	// SizeBytes is what Expand returned; 0 if the driver did not say.
	SizeBytes int64
	// RenewAt is when the mount that Publish made has to be renewed; zero means never.
	RenewAt time.Time
	// Seen is what the kernel shows at the path that Stage or Publish made.
	Seen state.Seen
}

// failed reports whether the call did not succeed.
func (r Result) failed() bool { return r.Err != nil && r.Err.Outcome != state.Partly }

// groupFailed returns what of a successful Publish is missing; "" for nothing.
func (r Result) groupFailed() string {
	if r.Err == nil {
		return ""
	}
	return r.Err.Err.Error()
}

// mostNoEffect bounds [state.Mount.NoEffect], and so the number of calls in one removal.
const mostNoEffect = 1000

// Begin returns the record of v while op's call is in flight.
func Begin(v state.Volume, op Op, w state.Want, f Facts) state.Volume {
	w = keepShared(w, v, f)
	switch op.Kind {
	case Attach:
		v = recordMade(renew(v, w, f), w, f)
		v.For = byUID(w.Pods)
		v.Attach = withPhase(v.Attach, state.Entering)
	case Stage:
		v = recordMade(renew(v, w, f), w, f)
		v.For = byUID(w.Pods)
		v.Stage, v.ExpandFailed = withPhase(v.Stage, state.Entering), nil
	case Publish:
		if v.Mounts[op.Pod].Phase == state.Absent { // only a call that a reboot cut off begins with an Unpublish
			v.Former = withoutFormer(v.Former, op.Pod)
		}
		v = recordMade(renew(v, w, f), w, f)
		v.Mounts = withMount(v.Mounts, op.Pod, entering(v, w, f, op.Pod))
	case Republish:
		v.Mounts = withMount(v.Mounts, op.Pod, withRenewal(v.Mounts[op.Pod], w.Pods[op.Pod]))
	case Unpublish:
		v = markLeaving(v, op.Pod)
	case Unstage:
		v.Stage = withPhase(v.Stage, state.Leaving)
	case Detach:
		v.Attach = withPhase(v.Attach, state.Leaving)
	}
	return v
}

// entering returns pod's mount while Publish makes it.
func entering(v state.Volume, w state.Want, f Facts, pod state.PodUID) state.Mount {
	m := v.Mounts[pod]
	if !used(v, m) {
		m.MountSpec = w.Pods[pod].MountSpec
		m.Waits = f.Driver.Expand && waitsToGrow(v, w, m)
	}
	if seen, made := f.Doubt.Made[pod]; made {
		m.Seen = seen // so that the mount counts as in use until the call has ended
	}
	m = withRenewal(m, w.Pods[pod])
	m.Fact = withPhase(m.Fact, state.Entering)
	return m
}

// recordMade returns v with the mounts that its pods have without a record. The first call gives all of them
// their record: while it runs, a pod may leave, or an operator may accept the loss of the records. Of an
// exclusive volume that several pods may have, each gets its record when it is published again.
func recordMade(v state.Volume, w state.Want, f Facts) state.Volume {
	if exclusive(w, v) && (len(f.Doubt.Made) > 1 || f.Doubt.Why != "") {
		return v
	}
	for _, pod := range byUID(f.Doubt.Made) {
		if v.Mounts[pod].Phase == state.Absent {
			v.Mounts = withMount(v.Mounts, pod, entering(v, w, f, pod))
		}
	}
	return v
}

// Leave returns v with pod's mount leaving. The pod's containers are proven to have
// ended ([Keep]); a pod that is listed with the same UID from now on is a new pod and
// inherits nothing.
func Leave(v state.Volume, pod state.PodUID) state.Volume {
	v.For = slices.DeleteFunc(slices.Clone(v.For), func(p state.PodUID) bool { return p == pod })
	if m, has := v.Mounts[pod]; has && m.Phase != state.Absent {
		v = markLeaving(v, pod)
	}
	return v
}

// markLeaving returns v with pod's mount leaving. Usually that happens before Unpublish
// has a slot.
func markLeaving(v state.Volume, pod state.PodUID) state.Volume {
	if m := v.Mounts[pod]; m.Phase != state.Leaving {
		m.Fact = withPhase(m.Fact, state.Leaving)
		v.Mounts = withMount(v.Mounts, pod, m)
	}
	return v
}

// withPhase returns f in phase p. A change of phase drops the pacing of earlier calls.
func withPhase(f state.Fact, p state.Phase) state.Fact {
	if f.Phase != p {
		f = state.Fact{Phase: p}
	}
	return f
}

func withMount(mounts map[state.PodUID]state.Mount, pod state.PodUID, m state.Mount) map[state.PodUID]state.Mount {
	if _, has := mounts[pod]; len(mounts) == 0 || has && len(mounts) == 1 { // most volumes have one pod
		return map[state.PodUID]state.Mount{pod: m}
	}
	mounts = maps.Clone(mounts)
	mounts[pod] = m
	return mounts
}

func withoutMount(mounts map[state.PodUID]state.Mount, pod state.PodUID) map[state.PodUID]state.Mount {
	if _, has := mounts[pod]; has && len(mounts) == 1 { // most volumes have one pod
		return nil
	}
	mounts = maps.Clone(mounts)
	delete(mounts, pod)
	return mounts
}

// chainLimit bounds how far Intent looks ahead; a longer chain costs another durable write.
const chainLimit = 64

// Intent returns the record that must be durable before op's call is made: begun, which
// Begin returned, plus the facts of the calls that follow if each one succeeds. So
// those calls need no durable writes of their own.
func Intent(begun state.Volume, op Op, w state.Want, f Facts) state.Volume {
	intent, ahead, removes := begun, begun, op.Kind.Removes()
	for range chainLimit {
		if op.Kind == Publish && len(w.Pods) == 1 {
			break // nothing that follows the only pod's Publish has to be marked
		}
		ahead = Complete(ahead, op, Result{}, time.Time{})
		op, _ = Next(w, ahead, f, time.Time{})
		if op.Kind == None || op.Kind == Republish || op.Kind == Expand || op.Kind.Removes() != removes {
			break
		}
		ahead = Begin(ahead, op, w, f)
		intent = markFact(intent, ahead, op)
	}
	return intent
}

// markFact returns intent with the fact that op changes copied from ahead.
func markFact(intent, ahead state.Volume, op Op) state.Volume {
	switch op.Kind {
	case Attach, Detach:
		intent.Attach = ahead.Attach
	case Stage, Unstage:
		intent.Stage = ahead.Stage
	case Publish, Unpublish:
		if len(intent.Mounts) == 0 && len(ahead.Mounts) == 1 { // most volumes have one pod
			intent.Mounts = ahead.Mounts
			break
		}
		intent.Mounts = withMount(intent.Mounts, op.Pod, ahead.Mounts[op.Pod])
	}
	return intent
}

// Covers reports whether durable already holds what must be durable before op's call is
// made; begun is Begin's result.
func Covers(durable, begun state.Volume, op Op) bool {
	if op.Kind == Republish || op.Kind == Expand {
		return true // they change no fact, and repeating them is harmless
	}
	if durable.Needs != begun.Needs || !durable.Spec.Equal(begun.Spec) {
		return false
	}
	switch op.Kind {
	case Attach, Detach:
		return durable.Attach.Phase == begun.Attach.Phase
	case Stage, Unstage:
		return durable.Stage.Phase == begun.Stage.Phase
	default:
		d, b := durable.Mounts[op.Pod], begun.Mounts[op.Pod]
		return d.Phase == b.Phase && d.MountSpec.Equal(b.MountSpec)
	}
}

// revisionAt returns when the content that op published was published; zero if it has none.
func revisionAt(op Op, now time.Time) time.Time {
	if op.Revision == "" {
		return time.Time{}
	}
	return now
}

// Complete returns v, a result of Begin, after op's call has ended with r.
func Complete(v state.Volume, op Op, r Result, now time.Time) state.Volume {
	if op.Kind == Publish && r.failed() && r.Err.Reason == state.NoEffect {
		m := v.Mounts[op.Pod]
		m.NoEffect = min(m.NoEffect+1, mostNoEffect)
		v.Mounts = withMount(v.Mounts, op.Pod, m)
	}
	if op.Kind == Publish {
		v.Former = withoutFormer(v.Former, op.Pod) // it was unpublished before the call
	}
	if (op.Kind == Publish || op.Kind == Republish) && v.Mounts[op.Pod].Phase == state.Leaving {
		return v // the pod left during the call, and a removal is never turned back (rule 2)
	}
	if r.failed() {
		return fail(v, op, r.Err, now)
	}
	switch op.Kind {
	case Attach:
		v.Attach, v.PublishContext = state.Fact{Phase: state.Present}, r.PublishContext
	case Stage:
		v.Stage, v.Staged = state.Fact{Phase: state.Present}, r.Seen
	case Publish:
		m := v.Mounts[op.Pod]
		m.Fact, m.Seen, m.GroupFailed = state.Fact{Phase: state.Present}, r.Seen, r.groupFailed()
		m.Revision, m.RevisionAt = op.Revision, revisionAt(op, now)
		m.RenewAt = renewAt(v.ID, m, r.RenewAt, now)
		v.Mounts = withMount(v.Mounts, op.Pod, m)
	case Republish:
		m := v.Mounts[op.Pod]
		m.Failed, m.Revision, m.RevisionAt = nil, op.Revision, revisionAt(op, now)
		m.RenewAt = renewAt(v.ID, m, r.RenewAt, now)
		v.Mounts = withMount(v.Mounts, op.Pod, m)
	case Expand:
		v.ExpandFailed, v.SizeBytes = nil, max(op.SizeBytes, r.SizeBytes)
	case Unpublish:
		if v.Needs != (state.Needs{}) {
			v.Former = withFormer(v, op.Pod, v.Mounts[op.Pod].Target)
		}
		v.Mounts = withoutMount(v.Mounts, op.Pod)
	case Unstage:
		v.Stage, v.Staged, v.ExpandFailed, v.Former = state.Fact{}, state.Seen{}, nil, nil
	case Detach:
		v.Attach, v.PublishContext, v.Former = state.Fact{}, nil, nil
	}
	return v
}

// fail records the failure of op. It leaves every phase as Begin wrote it, since no error
// proves a fact absent.
func fail(v state.Volume, op Op, err *state.CallError, now time.Time) state.Volume {
	next := func(r *state.Retry) *state.Retry { return backoff(r.Value(), v.ID, op, err, now).Kept() }
	switch op.Kind {
	case Attach, Detach:
		v.Attach.Failed = next(v.Attach.Failed)
	case Stage, Unstage:
		v.Stage.Failed = next(v.Stage.Failed)
	case Expand:
		v.ExpandFailed = next(v.ExpandFailed)
	default:
		m := v.Mounts[op.Pod]
		m.Failed = next(m.Failed)
		v.Mounts = withMount(v.Mounts, op.Pod, m)
	}
	return v
}
