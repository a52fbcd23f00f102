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

// announce queues the intent of a volume that waits for a slot for the next write
// that is made anyhow, so that the call costs none of its own when it has one.
// What a crash then finds is an intent like any other. Without it 1,000 pods take 1.2
// times the CPU and 1.3 times the bytes (docs/performance.md).
func (l *loop) announce(v *volume, r state.Volume, op plan.Op, w state.Want, f plan.Facts) {
	begun := plan.Begin(r, op, w, f)
	if l.journal.covers(&begun, op) {
		v.intent = nil
		return
	}
	if v.intent == nil {
		l.intents = append(l.intents, v.id)
	}
	v.intent = &announcement{v.slot, op.Kind.Removes(), plan.Intent(begun, op, w, f)}
}

// announceSome adds to b the intents of those that wait longest.
func (l *loop) announceSome(b batch) []*announcement {
	var some []*announcement
	for len(l.intents) > 0 && len(some) < announceMost {
		id := l.intents[0]
		if l.intents = l.intents[1:]; len(l.intents) == 0 {
			l.intents = nil
		}
		v := l.volumes[id]
		if v == nil || v.intent == nil {
			continue
		}
		a := v.intent
		v.intent = nil
		if _, has := b[id]; has || v.slot != a.waits {
			continue // it does not wait any more, or for something else
		}
		some = append(some, a)
		b[id] = &a.intent
	}
	return some
}

// announced takes in that the intents are durable, or may be. No removal is
// turned back from then (rule 2): a pod that comes back must not be told that it
// has what the journal says is leaving.
func (l *loop) announced(some []*announcement, err error) {
	for _, a := range some {
		v := l.row(a.waits.id)
		if v.record != nil && a.removes {
			leaving := *v.record
			leaving.Mounts = a.intent.Mounts
			l.setRecord(&leaving)
			l.changed.push(v.id)
		}
		if err == nil {
			delete(l.journal.unsaved, v.id) // the journal says more, not less
			v.announced = true
		}
	}
}

// correctAnnounced takes in that a volume was planned: where the journal says that it is
// begun, and it neither is nor waits for a slot any more, that is corrected.
func (l *loop) correctAnnounced(id state.VolumeID) {
	v := l.volumes[id]
	if v == nil || !v.announced || v.waits() || v.call != nil {
		return
	}
	v.announced = false
	l.journal.later(id)
}
