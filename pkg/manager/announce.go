package manager

import (
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// announceMost bounds how many intents of volumes that wait for a slot go along
// with one durable write: so many that a burst has few writes, and so few that
// the calls of those that have a slot do not wait long for it (20 µs each).
const announceMost = 128

// announcement is an intent that may be durable before its call has a slot. It
// stands until the volume's record changes.
type announcement struct {
	waits   blockedKey
	removes bool
	intent  state.Volume
}

// announce offers the intent of a volume that waits for a slot to the next write
// that is made anyhow, so that the call costs none of its own when it has one.
// What a crash then finds is an intent like any other.
func (l *loop) announce(id state.VolumeID, v state.Volume, op plan.Op, w state.Want, f plan.Facts) {
	begun := plan.Begin(v, op, w, f)
	if l.covers(&begun, op) {
		delete(l.offers, id)
		return
	}
	if _, offered := l.offers[id]; !offered {
		l.offered = append(l.offered, id)
	}
	l.offers[id] = &announcement{l.isBlocked[id], op.Kind.Removes(), plan.Intent(begun, op, w, f)}
}

// covers reports whether the journal says already what it has to before op's call.
func (l *loop) covers(begun *state.Volume, op plan.Op) bool {
	if durable := l.durable[begun.ID]; durable != nil {
		return plan.Covers(*durable, *begun, op)
	}
	return plan.Covers(state.Volume{}, *begun, op)
}

// announceSome adds to batch the intents of those that wait longest.
func (l *loop) announceSome(batch map[state.VolumeID]*state.Volume) []*announcement {
	var some []*announcement
	for len(l.offered) > 0 && len(some) < announceMost {
		id := l.offered[0]
		if l.offered = l.offered[1:]; len(l.offered) == 0 {
			l.offered = nil
		}
		a, stands := l.offers[id]
		delete(l.offers, id)
		if _, has := batch[id]; has || !stands || l.isBlocked[id] != a.waits {
			continue // it does not wait any more, or for something else
		}
		some = append(some, a)
		batch[id] = &a.intent
	}
	return some
}

// announced takes in that the intents are durable, or may be. No removal is
// turned back from then (rule 2): a pod that comes back must not be told that it
// has what the journal says is leaving.
func (l *loop) announced(some []*announcement, err error) {
	for _, a := range some {
		id := a.waits.id
		if v, known := l.mem[id]; known && a.removes {
			leaving := *v
			leaving.Mounts = a.intent.Mounts
			l.setRecord(&leaving)
			l.changed.push(id)
		}
		if err == nil {
			delete(l.lazy, id) // the journal says more, not less
			l.early[id] = struct{}{}
		}
	}
}

// followed takes in that a volume was planned: where the journal says that it is
// begun, and it neither is nor waits for a slot any more, that is corrected.
func (l *loop) followed(id state.VolumeID) {
	if !l.early.has(id) {
		return
	}
	if _, waits := l.isBlocked[id]; waits {
		return
	}
	if _, busy := l.busy[id]; busy {
		return
	}
	delete(l.early, id)
	l.later(id)
}
