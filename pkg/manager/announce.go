package manager

import (
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// announceMost bounds how many intents of volumes that wait for a slot one durable
// write includes: enough for a burst to need few writes, and few enough that the
// calls that have a slot do not wait long for them (20 µs each).
const announceMost = 128

// announcement is an intent that may become durable before its call has a slot. It is
// valid until the volume's record changes.
type announcement struct {
	waits   blockedKey
	removes bool
	intent  state.Volume
}

// announce queues the intent of a volume that waits for a slot. The next write that is made
// anyway includes it, so that the call needs no write of its own when it gets its slot.
// After a crash it is an intent like any other. Without this 1,000 pods take 1.2 times
// the CPU and write 1.3 times the bytes (docs/performance.md).
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

// takeAnnouncements adds to b the intents that have been queued longest, and returns them.
func (l *loop) takeAnnouncements(b batch) []*announcement {
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
			continue // the volume no longer waits for this call
		}
		some = append(some, a)
		b[id] = &a.intent
	}
	return some
}

// announced records that intents are durable, or, after an error, may be. From then on a
// removal is not turned back (rule 2): a pod that returns must not see a mount that the
// journal says is leaving.
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
			delete(l.journal.unsaved, v.id) // the journal has at least these facts
			v.announced = true
		}
	}
}

// correctAnnounced is called after a volume was planned. If the journal has the intent of a
// call that neither began nor waits for a slot, the record is written again.
func (l *loop) correctAnnounced(id state.VolumeID) {
	v := l.volumes[id]
	if v == nil || !v.announced || v.waits() || v.call != nil {
		return
	}
	v.announced = false
	l.journal.markUnsaved(id)
}
