package manager

import (
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// slots counts the calls in flight of all drivers, and numbers the volumes that wait for
// a slot.
type slots struct {
	running  plan.Running
	arrivals uint64
}

// blockedKey is a volume that waits for a slot, for a call of a kind.
type blockedKey struct {
	id      state.VolumeID
	kind    plan.Kind
	arrival uint64
}

// count adds n to the calls in flight of the node and of d.
func (l *loop) count(d *driver, op plan.Op, n int) {
	l.running, d.running = add(l.running, op.Kind, n), add(d.running, op.Kind, n)
}

// countStart counts a call that begins. A burst starts with few calls, unless the driver is known
// to be fast, or to take no longer for many calls than for one. When a driver becomes idle,
// its next burst starts with few calls again, since another kind of call may be slow.
func (l *loop) countStart(d *driver, op plan.Op) {
	if d.running.Calls == 0 {
		d.running.First = 0
		if d.running.More <= 0 && !d.pace.Fast(op.Kind) {
			d.running.First = l.cfg.Limits.First
		}
	}
	l.count(d, op, +1)
}

// widen raises the bound on the driver's first calls in steps, while volumes wait.
func (l *loop) widen(d *driver) {
	if d.running.First == 0 || d.widening {
		return
	}
	d.widening = true
	time.AfterFunc(plan.FirstWait, func() {
		l.m.post(func(l *loop) {
			d.widening = false
			if d.running.First > 0 {
				d.running.First = l.cfg.Limits.Widen(d.running.First)
			}
			if d.waits() {
				l.widen(d)
			}
		})
	})
}

// waits reports whether volumes wait for a slot of the driver.
func (d *driver) waits() bool { return !d.blocked[0].empty() || !d.blocked[1].empty() }

// block queues a planned volume for a slot. of is the pod whose turns it takes.
func (l *loop) block(v *volume, d *driver, k plan.Kind, of state.Pod) {
	if v.waits() && v.slot.kind.Removes() == k.Removes() {
		return
	}
	l.arrivals++
	v.slot = blockedKey{v.id, k, l.arrivals}
	q := &d.blocked[0]
	if k.Removes() {
		q = &d.blocked[1]
	}
	q.push(of, v.slot)
	l.widen(d)
}

// stopWaiting ends the wait for a slot, because the volume has one or needs none. The intent
// of the call that it waited for is no longer written.
func (v *volume) stopWaiting() {
	v.slot, v.intent = blockedKey{}, nil
}

// waits reports whether the volume waits for a slot.
func (v *volume) waits() bool { return v.slot.arrival != 0 }

// unblock marks as dirty the volumes whose turn it is, as many as there are free slots. Its
// cost grows with that number, not with the number of volumes that wait.
func (l *loop) unblock() {
	node, drivers := l.running, map[*driver]plan.Running{}
	for {
		d, q := l.firstBlocked(node, drivers)
		if q == nil {
			return
		}
		b, _ := q.head()
		q.pop()
		l.volumes[b.id].slot = blockedKey{}
		l.dirty.push(b.id)
		node, drivers[d] = add(node, b.kind, 1), add(drivers[d], b.kind, 1)
	}
}

// firstBlocked returns the queue whose head has waited longest, among the heads that would
// be admitted if each driver had the calls of more in flight in addition to its own.
func (l *loop) firstBlocked(node plan.Running, more map[*driver]plan.Running) (of *driver, first *blockedQueue) {
	var arrival uint64
	for _, d := range l.drivers {
		r := d.running
		r.Calls, r.Making = r.Calls+more[d].Calls, r.Making+more[d].Making
		for i := range d.blocked {
			q := &d.blocked[i]
			head, ok := q.head()
			for ; ok && !l.stillBlocked(head); head, ok = q.head() {
				q.drop() // the volume was forgotten, or no longer waits for this
			}
			if !ok || first != nil && arrival < head.arrival {
				continue
			}
			if l.cfg.Limits.Admit(node, r, head.kind) {
				of, first, arrival = d, q, head.arrival
			}
		}
	}
	return of, first
}

// stillBlocked reports whether the volume of b still waits for it.
func (l *loop) stillBlocked(b blockedKey) bool {
	v := l.volumes[b.id]
	return v != nil && v.slot == b
}

// add returns r with n more calls of kind k.
func add(r plan.Running, k plan.Kind, n int) plan.Running {
	r.Calls += n
	if !k.Removes() {
		r.Making += n
	}
	return r
}

// watchSlot marks the call of s as slow when it has taken longer than plan.SlowSlot. end
// stops that.
func (l *loop) watchSlot(s *start) (end func() bool) {
	return time.AfterFunc(plan.SlowSlot, func() {
		l.m.post(func(l *loop) {
			if v := l.volumes[s.id]; v != nil && v.call != nil && v.call.start == s && !v.call.slow {
				v.call.slow = true
				countSlow(s, +1)
			}
		})
	}).Stop
}

// countSlow adds n to the slow calls of s's driver.
func countSlow(s *start, n int) {
	r := &s.driver.running
	r.Slow += n
	if !s.op.Kind.Removes() {
		r.SlowMaking += n
	}
}
