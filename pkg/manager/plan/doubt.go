package plan

import "github.com/csi-volmgr/csi-volmgr/pkg/state"

// Doubt is what may exist of a volume on the host without a record, because the journal
// may have lost its newest records ([state.Recovery]).
type Doubt struct {
	// Why says that a pod without a record may use the volume; "" if none may.
	Why string
	// Operator: the doubt ends only when an operator resolves it, or when the mount that
	// Why names is gone.
	Operator bool
	// Made are the pods that want the volume and have something mounted at their target
	// without a record. Publishing to such a pod repeats a call: it takes nothing from
	// another pod, and afterwards there is a record.
	Made map[state.PodUID]state.Seen
	// Attached: the attachment was read from that journal, and no pod has wanted the volume since. The volume
	// may have been detached and attached again for a use that no record tells.
	Attached bool
	// Staged is what is mounted at the volume's stage path without a record.
	Staged state.Seen
}

// AdoptStage returns v with the stage that the journal lost, if v has other facts. The stage
// is then made again, or removed before the attachment below it (rule 1). changed reports
// whether there was one.
func AdoptStage(v state.Volume, d Doubt) (now state.Volume, changed bool) {
	if !d.Staged.Mounted || !v.Needs.Stage || v.Stage.Phase != state.Absent || v.Clear() {
		return v, false
	}
	v.Stage, v.Staged = withPhase(v.Stage, state.Entering), d.Staged
	return v, true
}

// keeps reports whether v stays as it was begun although w differs: a pod has the volume
// without a record and gets its record first, and nothing below that pod is removed.
func (d Doubt) keeps(w state.Want, v state.Volume) bool {
	leaving := v.Attach.Phase == state.Leaving || v.Stage.Phase == state.Leaving
	return len(d.Made) > 0 && v.Spec != nil && !v.Clear() && !leaving && !reattached(w, v)
}

// reason returns d.Why with its code.
func (d Doubt) reason() reason {
	if d.Operator {
		return reasonIf(Unrecorded, d.Why)
	}
	return reasonIf(unlooked, d.Why)
}

// blocksRemoval says why neither stage nor attachment is removed by k: a pod without a record may
// depend on it.
func (d Doubt) blocksRemoval(k Kind) reason {
	if d.Attached && k == Detach {
		return reason{Unrecorded, reasonAttached}
	}
	if d.Why == "" && len(d.Made) > 0 {
		return reason{unmade, reasonUnmade}
	}
	return d.reason()
}

// blocksReplacement says why no wanted mount is replaced by one of another form: the mount
// table has not been read yet, and a record in doubt does not say whether its pod has the
// mount.
func (d Doubt) blocksReplacement() reason {
	if d.Operator {
		return reason{}
	}
	return d.reason()
}

// blocksBegin says why v is neither attached nor staged. If a known pod already has the
// volume, these calls only repeat earlier ones and need not wait.
func (d Doubt) blocksBegin(v state.Volume) reason {
	if len(d.Made) > 0 || !v.Unmounted() {
		return reason{}
	}
	return d.reason()
}

// blocksPublish says why v is not published to pod. The record of an exclusive volume may be
// older than another pod's mount of it.
func (d Doubt) blocksPublish(v state.Volume, pod state.PodUID, exclusive bool) reason {
	m := v.Mounts[pod]
	if _, made := d.Made[pod]; made {
		return reason{}
	}
	if exclusive {
		for _, other := range byUID(d.Made) {
			return reason{InUse, reasonInUse + string(other)}
		}
	} else if m.Phase != state.Absent {
		return reason{}
	}
	return d.reason()
}

const (
	reasonAttached = "the attachment was read from a journal that may have lost newer records: the volume is not " +
		"detached before csi-volmgr journal accept --reason=TEXT, or before a pod has used it again"
	reasonUnmade = "a pod has the volume mounted without a record; its record is written first"
	// reasonInUse is followed by the pod's name or UID.
	reasonInUse = "the volume uses the ReadWriteOncePod access mode and is already in use by another pod, "
)
