package manager

import (
	"maps"
	"slices"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// setRecord replaces what is known of a volume; the journal learns it lazily.
func (l *loop) setRecord(v state.Volume) {
	before := named(l.mem[v.ID])
	l.unname(v.ID)
	l.serves(l.mem[v.ID], -1)
	l.mem[v.ID] = v
	l.serves(v, +1)
	for _, uid := range named(v) {
		if l.has[uid] == nil {
			l.has[uid] = set[state.VolumeID]{}
		}
		l.has[uid][v.ID] = struct{}{}
	}
	l.unask(l.unnamed(before)...)
	l.later(v.ID)
}

// named lists the pods that a record names.
func named(v state.Volume) []state.PodUID {
	return slices.AppendSeq(slices.Clone(v.For), maps.Keys(v.Mounts))
}

func (l *loop) unname(id state.VolumeID) {
	for _, uid := range named(l.mem[id]) {
		delete(l.has[uid], id)
		if len(l.has[uid]) == 0 {
			delete(l.has, uid)
		}
		l.changedPods[uid] = struct{}{}
	}
}

func (l *loop) later(id state.VolumeID) {
	if len(l.lazy) == 0 {
		l.lazySince = time.Now()
	}
	l.lazy[id] = struct{}{}
}

// drop forgets a volume of which nothing is left on the host.
func (l *loop) drop(id state.VolumeID) {
	before := named(l.mem[id])
	l.unname(id)
	l.unask(l.unnamed(before)...)
	name := l.mem[id].Spec.Driver
	l.serves(l.mem[id], -1) // where it is given up
	delete(l.mem, id)
	l.retryFull(name)
	delete(l.drift, id)
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
}

// forget removes the last traces of a volume that is neither known nor wanted.
func (l *loop) forget(id state.VolumeID) {
	delete(l.held, id)
	delete(l.unseen, id)
	delete(l.isBlocked, id)
	for name, d := range l.drivers {
		delete(d.keys, id)
		if len(d.keys) == 0 && d.status.Problem == neverUp(name) {
			delete(l.drivers, name) // known only by the volumes that named it
		}
	}
	l.wakes.set(id, time.Time{})
}
