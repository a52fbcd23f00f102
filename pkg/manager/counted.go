package manager

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Some drivers, csi-driver-host-path among them, count publications on their own disk: each Publish
// that mounts adds one, an Unpublish takes one away, and Unstage is refused while one is left. A
// mount that a reboot removed is published again, so such a driver counts it twice.

// formerDeadline bounds an Unpublish of a former target.
const formerDeadline = 30 * time.Second

// repeatUnpublish sets the former targets that s unpublishes again before its own call. There are
// none unless the driver has refused that call because it finds the volume in use. A target that
// another volume has or wants is left out: the driver would unmount that volume.
func (l *loop) repeatUnpublish(s *start) {
	fact := s.begun.Stage
	switch s.op.Kind {
	case plan.Unstage:
	case plan.Detach:
		fact = s.begun.Attach
	default:
		return
	}
	r := fact.Retry()
	code := state.CodeOf(r.Call, r.Code)
	if r.Call != rpc(s.op.Kind) || r.Unanswered || !code.Conflict || code.Outcome != state.Failed {
		return
	}
	for uid, target := range s.begun.Former {
		if !l.othersAt(uid, target, s.id) {
			s.again = append(s.again, uid)
			l.unpublishing[target] = s.id
		}
	}
	slices.Sort(s.again)
}

// othersAt reports whether another volume is, may be, or is wanted at a pod's target.
func (l *loop) othersAt(uid state.PodUID, target string, id state.VolumeID) bool {
	if l.unrecorded != nil && l.unrecorded.lost {
		return true // a record of that volume may be lost
	}
	for _, other := range l.pods.volumes[uid] {
		if m := l.volumes[other].record.Mounts[uid]; other != id && m.Phase != state.Absent && m.Target == target {
			return true
		}
	}
	return slices.ContainsFunc(l.pods.listed[uid].Volumes, func(w state.VolumeWant) bool {
		return w.ID != id && w.Mount.Target == target
	})
}

// endRepeat lets other volumes have the targets that s unpublished again.
func (l *loop) endRepeat(s *start) {
	for _, uid := range s.again {
		delete(l.unpublishing, s.begun.Former[uid])
	}
	if len(s.again) > 0 {
		l.planDisplaced()
	}
}

// unpublishAgain unpublishes former targets once more. A definite failure does not end it: the
// driver may refuse to unpublish what does not exist.
func (c caller) unpublishAgain(ctx *callContext, v state.Volume) error {
	for _, uid := range c.again {
		err := c.unpublishFormer(ctx, v, uid)
		if err != nil && state.AsCallError(rpc(plan.Unpublish), err).Outcome == state.Uncertain {
			return err
		}
	}
	return nil
}

// unpublishFirst makes one Unpublish before the first Publish after a reboot, unless there is a mount:
// then the node was not rebooted, although its boot id says so. Whatever the driver answers, the
// Publish follows.
func (c caller) unpublishFirst(ctx *callContext, v state.Volume, op plan.Op) {
	target, former := v.Former[op.Pod]
	if op.Kind != plan.Publish || !former {
		return
	}
	ctx.setDeadline(lookDeadline, errNoLook)
	seen, err := c.cfg.Kernel.Look(ctx, target)
	ctx.setDeadline(ctx.limit, nil)
	if err == nil && !seen.Mounted && !seen.BlockDevice {
		_ = c.unpublishFormer(ctx, v, op.Pod) // it is logged
	}
}

// unpublishFormer calls Unpublish for a former target of v. The time for the call that follows
// starts again after it.
func (c caller) unpublishFormer(ctx *callContext, v state.Volume, uid state.PodUID) error {
	m := state.Mount{MountSpec: state.MountSpec{Pod: state.Pod{UID: uid}, Target: v.Former[uid]}}
	v.Mounts = map[state.PodUID]state.Mount{uid: m}
	short, cancel := context.WithTimeoutCause(ctx, formerDeadline, fmt.Errorf("no answer within %v", formerDeadline))
	defer cancel()
	within := context.Context(short)
	if c.cfg.Within != nil {
		within = c.cfg.Within(within, v)
	}
	err := c.driver.Unpublish(within, v, uid)
	ctx.setDeadline(ctx.limit, nil)
	if err != nil {
		c.cfg.Logger.Warn("former target of a volume is not unpublished", "volume", v.ID, "driver", c.info.Name, "pod", uid,
			"err", err)
	}
	return err
}
