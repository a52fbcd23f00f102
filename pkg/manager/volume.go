package manager

import (
	"iter"
	"slices"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// volume is the loop's row of one volume. It is there while the volume has a record, is
// wanted, or is quarantined; [loop.forget] ends it.
type volume struct {
	id state.VolumeID
	// record is what is known, nil where nothing of it is here. It is replaced, never
	// changed: the journal may have the same one.
	record *state.Volume
	// quarantined is why the journal's record cannot be read; "" where it can.
	quarantined string

	wants map[state.PodUID]wanted
	// want is what all of wants together come to, for the plans until the volume is as
	// wanted or the wishes change; nil before the first.
	want *state.Want
	// order is the removal that an operator asked for with a step; its Kind is None
	// without one.
	order plan.Op

	// call is in flight for it, or a look; nil where none is.
	call *call
	// slot is what it was planned for and waits with for a slot of its driver; zero
	// where it does not.
	slot blockedKey
	// intent is what the next write of the journal may take along.
	intent *announcement
	// announced: the journal says more than record: the call was announced, and has not begun.
	announced bool
	// held is why else it waits; nil where it does not.
	held *heldSince

	// unseen are the pods whose mounts may be there and could not be looked at.
	unseen set[state.PodUID]
	// drift is what looks found of mounts that no call would mend, by path.
	drift map[string]string
	// faults is, by path, why a file system takes no writes any more.
	faults map[string]string
	// dead is what calls found of the server of what is mounted.
	dead deadMount
}

// wanted is one pod's wish for a volume, with the number of its arrival.
type wanted struct {
	*state.VolumeWant
	arrival uint64
}

// heldSince is why a volume waits and since when it does for this reason.
type heldSince struct {
	plan.Held
	since time.Time
}

// row returns the volume's row, which it makes where there is none.
func (l *loop) row(id state.VolumeID) *volume {
	v := l.volumes[id]
	if v == nil {
		v = &volume{id: id}
		l.volumes[id] = v
	}
	return v
}

// clear reports whether nothing of the volume is here, by its record.
func (v *volume) clear() bool { return v.record == nil || v.record.Clear() }

// recordOrEmpty returns the record, one in which all is absent where there is none.
func (v *volume) recordOrEmpty() state.Volume {
	if v.record == nil {
		return state.Volume{ID: v.id}
	}
	return *v.record
}

// op is the call in flight; its Kind is None where none is.
func (v *volume) op() plan.Op {
	if v.call == nil {
		return plan.Op{}
	}
	return v.call.op
}

// setRecord replaces what is known of a volume; the journal learns it lazily.
func (l *loop) setRecord(r *state.Volume) {
	v := l.row(r.ID)
	was := v.recordOrEmpty()
	l.serves(&was, -1)
	v.record = r
	v.intent = nil // it was made of the record before
	l.serves(r, +1)
	l.unrecorded.recorded(r)
	for uid := range named(r) {
		l.pods.has.add(uid, v.id)
	}
	for uid := range named(&was) {
		if !names(r, uid) {
			l.unname(uid, v.id)
		}
	}
	l.journal.later(v.id)
}

// named goes through the pods that a record names; one may come twice.
func named(r *state.Volume) iter.Seq[state.PodUID] {
	return func(yield func(state.PodUID) bool) {
		for _, uid := range r.For {
			if !yield(uid) {
				return
			}
		}
		for uid := range r.Mounts {
			if !yield(uid) {
				return
			}
		}
	}
}

func names(r *state.Volume, uid state.PodUID) bool {
	_, has := r.Mounts[uid]
	return has || slices.Contains(r.For, uid)
}

// unname takes in that a record does not name a pod any more.
func (l *loop) unname(uid state.PodUID, id state.VolumeID) {
	if l.pods.has.remove(uid, id) {
		l.unask(uid)
	}
}

// drop takes in that nothing of a volume is left on the host, or that the operator
// gave its record up.
func (l *loop) drop(v *volume) {
	was := v.record
	for uid := range named(was) {
		l.unname(uid, v.id)
	}
	l.serves(was, -1) // where it is given up
	v.record, v.order, v.drift, v.faults, v.dead = nil, plan.Op{}, nil, nil, deadMount{}
	l.retryFull(was.Spec.Driver)
	l.journal.later(v.id)
	if len(v.wants) == 0 {
		l.forget(v)
	}
	if l.cfg.OnGone != nil {
		l.gone = append(l.gone, v.id)
	}
}

// forget ends what the loop has to do about a volume that has nothing here, and its
// row, unless a pod wants it, which waits while the node is emptied.
func (l *loop) forget(v *volume) {
	v.held, v.unseen, v.want = nil, nil, nil
	v.waitsNoMore()
	for name, d := range l.drivers {
		delete(d.keys, v.id)
		if len(d.keys) == 0 && d.status.Problem != "" && d.status.Problem == neverUp(name) {
			delete(l.drivers, name) // known only by the volumes that named it
		}
	}
	l.wakes.set(v.id, time.Time{})
	if len(v.wants) > 0 {
		return
	}
	if v.announced {
		l.journal.later(v.id) // it says that the call was begun
	}
	delete(l.volumes, v.id)
}
