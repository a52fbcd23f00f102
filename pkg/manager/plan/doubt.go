package plan

import "github.com/csi-volmgr/csi-volmgr/pkg/state"

// Doubt is what may be on the host of a volume without a record of it, since the
// journal may have lost its newest ones ([state.Recovery]).
type Doubt struct {
	// Why says that a pod may use the volume that no record tells of; "" for none.
	Why string
	// Operator: only an operator knows more, or the end of the mount that Why names.
	Operator bool
	// Made are pods that want the volume and at whose target something is mounted
	// without a record. A publish call there is one made again: it takes nothing from
	// another pod, and then there is a record.
	Made map[state.PodUID]state.Seen
	// Staged is what is mounted at the volume's stage path without a record.
	Staged state.Seen
}

// TakeIn returns v with the stage that the journal lost, where v has a record of what
// the stage stands on: it is made again, or taken away before that goes (rule 1).
func TakeIn(v state.Volume, d Doubt) (now state.Volume, changed bool) {
	if !d.Staged.Mounted || !v.Needs.Stage || v.Stage.Phase != state.Absent || v.Clear() {
		return v, false
	}
	v.Stage, v.Staged = turn(v.Stage, state.Entering), d.Staged
	return v, true
}

// keeps reports whether v stays as it was begun though w says something else: a pod has
// it that is to have its record first, and nothing is taken away below that pod.
func (d Doubt) keeps(w state.Want, v state.Volume) bool {
	leaving := v.Attach.Phase == state.Leaving || v.Stage.Phase == state.Leaving
	return len(d.Made) > 0 && v.Spec != nil && !v.Clear() && !leaving && !reattached(w, v)
}

// why is d.Why with its code.
func (d Doubt) why() why {
	if d.Operator {
		return reasonFor(Unrecorded, d.Why)
	}
	return reasonFor(Unlooked, d.Why)
}

// below says why nothing is taken away on which a pod without a record may stand.
func (d Doubt) below() why {
	if d.Why == "" && len(d.Made) > 0 {
		return why{Unmade, reasonUnmade}
	}
	return d.why()
}

// unlooked says why nothing that pods want is made anew in another form: it is not known
// yet what is mounted, and a record in doubt does not say whether its pod has it.
func (d Doubt) unlooked() why {
	if d.Operator {
		return why{}
	}
	return d.why()
}

// begin says why v is neither attached nor staged. Where a pod has it already that is
// known, these calls are made again, as they were.
func (d Doubt) begin(v state.Volume) why {
	if len(d.Made) > 0 || !v.Unmounted() {
		return why{}
	}
	return d.why()
}

// publish says why v is not published to pod. What a record says of an exclusive volume
// may be older than what another pod has.
func (d Doubt) publish(v state.Volume, pod state.PodUID, exclusive bool) why {
	m := v.Mounts[pod]
	if _, made := d.Made[pod]; made {
		return why{}
	}
	if exclusive {
		for _, other := range byUID(d.Made) {
			return why{InUse, reasonInUse + string(other)}
		}
	} else if m.Phase != state.Absent {
		return why{}
	}
	return d.why()
}

const (
	reasonUnmade = "a pod has the volume mounted without a record, and is to have its record first"
	// reasonInUse is followed by the pod.
	reasonInUse = "the volume's access mode is ReadWriteOncePod and it is already in use by another pod, "
)
