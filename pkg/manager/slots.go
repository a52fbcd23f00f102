package manager

import (
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// blockedKey is a volume that waits for a slot to make its call of a kind.
type blockedKey struct {
	id     state.VolumeID
	driver *driver
	kind   plan.Kind
}

func (l *loop) count(d *driver, op plan.Op, n int) {
	l.running, d.running = add(l.running, op.Kind, n), add(d.running, op.Kind, n)
}

// block lets a planned volume wait for a slot, in order of arrival.
func (l *loop) block(b blockedKey) {
	if !l.isBlocked.has(b.id) {
		l.isBlocked[b.id] = struct{}{}
		l.blocked = append(l.blocked, b)
	}
}

// unblock plans those again who wait longest and whom the slots suffice for.
func (l *loop) unblock() {
	node, drivers := l.running, map[*driver]plan.Running{}
	rest := l.blocked[:0]
	for _, b := range l.blocked {
		r, ok := drivers[b.driver]
		if !ok {
			r = b.driver.running
		}
		if !l.cfg.Limits.Admit(node, r, b.kind) {
			rest = append(rest, b)
			continue
		}
		delete(l.isBlocked, b.id)
		l.dirty.push(b.id)
		node, r = add(node, b.kind, 1), add(r, b.kind, 1)
		drivers[b.driver] = r
	}
	l.blocked = rest
}

func add(r plan.Running, k plan.Kind, n int) plan.Running {
	r.Calls += n
	if !k.Removes() {
		r.Making += n
	}
	return r
}
