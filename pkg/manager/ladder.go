package manager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// stepDeadline bounds an unmount by a step, since storage that does not answer may block
// that too.
const stepDeadline = 30 * time.Second

// ErrNotStuck is wrapped by the error of UnmountBy if no unmount of the volume has failed or
// is in flight.
var ErrNotStuck = errors.New("no unmount of the volume has failed, or is under way")

// UnmountBy orders that an unmount of the volume that does not succeed is made by a step,
// once, as soon as no call for the volume is in flight. It fails with [ErrNotStuck] if there
// is no such unmount: even an operator cannot unmount a volume that may be in use (rule
// 5). When UnmountBy returns, [Manager.Volume] shows what comes next.
func (m *Manager) UnmountBy(ctx context.Context, id state.VolumeID, step state.UnmountStep) error {
	if m.cfg.Unmount == nil {
		return errors.ErrUnsupported
	}
	return m.do(ctx, func(l *loop) error { return l.orderUnmount(id, step) })
}

func (l *loop) orderUnmount(id state.VolumeID, step state.UnmountStep) error {
	var op plan.Op
	v, stuck := l.volumes[id], false
	if v != nil && v.record != nil {
		op, stuck = plan.Stuck(*v.record, v.op())
	}
	if !stuck {
		return fmt.Errorf("volume %s: %w", id, ErrNotStuck)
	}
	op.Step = step
	v.order = op
	l.reset(id)
	return nil
}

// endOrder ends an operator's order after the call that it was for; done says that the call
// succeeded. The order does not apply to the next call.
func (v *volume) endOrder(s *start, done bool) {
	if o := v.order; o == s.op || done && o.Kind == s.op.Kind && o.Pod == s.op.Pod {
		v.order = plan.Op{}
	}
}

// remove makes Unpublish or Unstage, after the unmount by a step if there is one: that comes
// first, since mounts that were made from this one for containers may hang like it. The
// driver is called even if the step failed, since it may know better; the look at the kernel
// afterwards decides.
func (c caller) remove(ctx context.Context, v state.Volume, op plan.Op) error {
	var stepErr error
	if op.Step != state.UnmountNormal {
		short, cancel := context.WithTimeoutCause(ctx, stepDeadline, fmt.Errorf("no answer within %v", stepDeadline))
		stepErr = c.cfg.Unmount(short, v, op.Pod, op.Step)
		cancel()
	}
	err := c.callRemove(ctx, v, op)
	if err == nil || stepErr == nil {
		return err
	}
	e := *state.AsCallError(rpc(op.Kind), err)
	e.Err = fmt.Errorf("%w; before it the step %s: %w", e.Err, op.Step, stepErr)
	return &e
}

// callRemove calls Unstage, or Unpublish. It calls Unpublish once more for every Publish
// that was answered OK without the effect: a driver whose mounts do not reach the host
// counts each of them as a publication and refuses Unstage until all are undone. A driver
// that does not count may refuse to unpublish what does not exist, so a definite failure
// of these additional calls is not a failure of the removal.
func (c caller) callRemove(ctx context.Context, v state.Volume, op plan.Op) error {
	if op.Kind == plan.Unstage {
		return c.driver.Unstage(ctx, v)
	}
	if c.cfg.BeforeUnpublish != nil {
		if err := c.cfg.BeforeUnpublish(ctx, v, op.Pod); err != nil {
			return err
		}
	}
	err := c.driver.Unpublish(ctx, v, op.Pod)
	if err != nil {
		return err
	}
	for range v.Mounts[op.Pod].NoEffect {
		switch err := c.driver.Unpublish(ctx, v, op.Pod); {
		case err == nil:
		case state.AsCallError(rpc(op.Kind), err).Outcome == state.Uncertain:
			return err
		default:
			return nil
		}
	}
	return nil
}

// addStrayFiles adds to the failure of an Unpublish how many files the target directory
// itself has, if nothing is mounted there: a directory that is not empty cannot be removed.
func (c caller) addStrayFiles(ctx context.Context, target string, failure error) error {
	if c.cfg.Stray == nil || !c.info.MountsTarget {
		return failure
	}
	if seen, err := c.cfg.Kernel.Look(ctx, target); err != nil || !seen.Exists || seen.Mounted {
		return failure
	}
	e := *state.AsCallError(rpc(plan.Unpublish), failure)
	e.Stray = c.cfg.Stray(target)
	return &e
}
