package manager

import (
	"iter"
	"slices"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// setRecord replaces what is known of a volume; the journal learns it lazily.
func (l *loop) setRecord(v *state.Volume) {
	was, known := l.mem[v.ID]
	if !known {
		was = &state.Volume{}
	}
	l.serves(was, -1)
	l.mem[v.ID] = v
	delete(l.offers, v.ID) // it was made of the record before
	l.serves(v, +1)
	l.unrecorded.recorded(v)
	for uid := range named(v) {
		l.has.add(uid, v.ID)
	}
	for uid := range named(was) {
		if !names(v, uid) {
			l.unname(uid, v.ID)
		}
	}
	l.later(v.ID)
}

// named goes through the pods that a record names; one may come twice.
func named(v *state.Volume) iter.Seq[state.PodUID] {
	return func(yield func(state.PodUID) bool) {
		for _, uid := range v.For {
			if !yield(uid) {
				return
			}
		}
		for uid := range v.Mounts {
			if !yield(uid) {
				return
			}
		}
	}
}

func names(v *state.Volume, uid state.PodUID) bool {
	_, has := v.Mounts[uid]
	return has || slices.Contains(v.For, uid)
}

// unname takes in that a record does not name a pod any more.
func (l *loop) unname(uid state.PodUID, id state.VolumeID) {
	if l.has.remove(uid, id) {
		l.unask(uid)
	}
}

func (l *loop) later(id state.VolumeID) {
	if _, already := l.lazy[id]; already {
		return
	}
	now := time.Now()
	if len(l.lazy) == 0 {
		l.lazySince = now
	}
	l.lazy[id] = now
}

// drop forgets a volume of which nothing is left on the host.
func (l *loop) drop(id state.VolumeID) {
	was := l.mem[id]
	for uid := range named(was) {
		l.unname(uid, id)
	}
	name := was.Spec.Driver
	l.serves(was, -1) // where it is given up
	delete(l.mem, id)
	delete(l.dead, id)
	l.retryFull(name)
	delete(l.drift, id)
	delete(l.erred, id)
	delete(l.orders, id)
	l.later(id)
	if len(l.wants[id]) == 0 {
		l.forget(id)
	}
	if l.cfg.OnGone != nil {
		l.gone = append(l.gone, id)
	}
}

// tellGone says what is gone, after the board does: who is told may look there.
func (l *loop) tellGone() {
	for _, id := range l.gone {
		l.cfg.OnGone(id)
	}
	l.gone = nil
	if l.tellUnrecorded && l.cfg.OnUnrecorded != nil {
		l.cfg.OnUnrecorded()
	}
	l.tellUnrecorded = false
}

// forget removes the last traces of a volume that is neither known nor wanted.
func (l *loop) forget(id state.VolumeID) {
	delete(l.held, id)
	delete(l.unseen, id)
	delete(l.together, id)
	l.waitsNoMore(id)
	for name, d := range l.drivers {
		delete(d.keys, id)
		if len(d.keys) == 0 && d.status.Problem != "" && d.status.Problem == neverUp(name) {
			delete(l.drivers, name) // known only by the volumes that named it
		}
	}
	l.wakes.set(id, time.Time{})
}
