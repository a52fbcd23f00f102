package manager

import (
	"iter"
	"slices"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// volume is the loop's row of one volume. It exists while the volume has a record, is
// wanted, or is quarantined; [loop.forget] deletes it.
type volume struct {
	id state.VolumeID
	// record is the volume's record; nil if nothing of the volume is on the host. It is
	// replaced, never changed, since the journal may hold the same one.
	record *state.Volume
	// old means that the record is that of a journal that may have lost newer ones, and no pod has wanted
	// the volume since.
	old bool
	// quarantined is why the journal's record cannot be read; "" if it can.
	quarantined string

	wants map[state.PodUID]wanted
	// want caches the merge of wants, until the volume is as wanted or the wishes change;
	// nil if there is none.
	want *state.Want
	// order is the removal that an operator ordered with a step; its Kind is None if there
	// is no order.
	order plan.Op

	// call is the call in flight, or a look at the kernel; nil if there is neither.
	call *call
	// slot is the volume's entry in the queue for its driver's slots; zero if it does not
	// wait for one.
	slot blockedKey
	// intent is the intent of the call that waits for slot; the next write of the journal
	// may include it.
	intent *announcement
	// announced: the journal has the intent of a call that has not begun.
	announced bool
	// held is why the volume waits, for a slot or anything else; nil if it does not.
	held *heldSince

	// unseen are the pods whose mounts may exist and could not be examined.
	unseen set[state.PodUID]
	// lookLater: a timer runs that has the volume compared with the kernel again.
	lookLater bool
	// drift says, by path, how mounts differ from how they were made, if no call would
	// repair that.
	drift map[string]string
	// faults says, by path, why a file system rejects writes.
	faults map[string]string
	// dead is what calls found out about the server of the mounted file system.
	dead deadMount
}

// wanted is one pod's wish for a volume; arrival numbers the wishes.
type wanted struct {
	*state.VolumeWant
	arrival uint64
}

// heldSince is why a volume waits, and since when it waits for this reason.
type heldSince struct {
	plan.Held
	since time.Time
}

// row returns the volume's row, creating it if there is none.
func (l *loop) row(id state.VolumeID) *volume {
	v := l.volumes[id]
	if v == nil {
		v = &volume{id: id}
		l.volumes[id] = v
	}
	return v
}

// clear reports whether the record says that nothing of the volume is on the host.
func (v *volume) clear() bool { return v.record == nil || v.record.Clear() }

// recordOrEmpty returns the record, or an empty one, whose facts are all absent.
func (v *volume) recordOrEmpty() state.Volume {
	if v.record == nil {
		return state.Volume{ID: v.id}
	}
	return *v.record
}

// op returns the call in flight; its Kind is None if there is none.
func (v *volume) op() plan.Op {
	if v.call == nil {
		return plan.Op{}
	}
	return v.call.op
}

// setRecord replaces the volume's record. The journal stores it lazily.
func (l *loop) setRecord(r *state.Volume) {
	v := l.row(r.ID)
	was := v.recordOrEmpty()
	l.countServed(&was, -1)
	v.record = r
	v.intent = nil // it was made from the previous record
	l.countServed(r, +1)
	l.noteStage(r.ID, &was, r)
	l.unrecorded.removeRecorded(r)
	l.left.removeRecorded(r)
	for uid := range podsOf(r) {
		l.pods.volumes.add(uid, v.id)
	}
	for uid := range podsOf(&was) {
		if !namesPod(r, uid) {
			l.removePodVolume(uid, v.id)
		}
	}
	l.journal.markUnsaved(v.id)
}

// podsOf yields the pods that a record names; it may yield a pod twice.
func podsOf(r *state.Volume) iter.Seq[state.PodUID] {
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

// namesPod reports whether a record names the pod.
func namesPod(r *state.Volume, uid state.PodUID) bool {
	_, has := r.Mounts[uid]
	return has || slices.Contains(r.For, uid)
}

// removePodVolume removes a volume from the pod's volumes, since its record no longer names the pod.
func (l *loop) removePodVolume(uid state.PodUID, id state.VolumeID) {
	if l.pods.volumes.remove(uid, id) {
		l.stopAsking(uid)
	}
}

// drop deletes a volume's record, because nothing of the volume is left on the host or
// because an operator gave it up.
func (l *loop) drop(v *volume) {
	was := v.record
	for uid := range podsOf(was) {
		l.removePodVolume(uid, v.id)
	}
	l.countServed(was, -1) // has an effect only if the record was given up
	l.noteStage(v.id, was, &state.Volume{})
	v.record, v.order, v.drift, v.faults, v.dead = nil, plan.Op{}, nil, nil, deadMount{}
	l.planBlockedByLimit(was.Spec.Driver)
	l.planDisplaced()
	l.journal.markUnsaved(v.id)
	if len(v.wants) == 0 {
		l.forget(v)
	}
	if l.cfg.OnGone != nil {
		l.gone = append(l.gone, v.id)
	}
}

// forget deletes the row of a volume that has nothing on the host, and what refers to it. If
// pods want the volume, the row stays: they wait until the node is no longer being emptied.
func (l *loop) forget(v *volume) {
	v.held, v.unseen, v.want = nil, nil, nil
	v.stopWaiting()
	for name, d := range l.drivers {
		delete(d.keys, v.id)
		if len(d.keys) == 0 && d.status.Problem != "" && d.status.Problem == neverUp(name) {
			delete(l.drivers, name) // it was never up, and no volume names it now
		}
	}
	l.wakes.set(v.id, time.Time{})
	if len(v.wants) > 0 {
		return
	}
	if v.announced {
		l.journal.markUnsaved(v.id) // the journal says that a call was begun
	}
	delete(l.volumes, v.id)
}
