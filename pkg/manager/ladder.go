package manager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// stepDeadline bounds an unmount by a step: it is there for storage that does
// not answer, which may keep it waiting as well.
const stepDeadline = 30 * time.Second

// ErrNotStuck is wrapped by the refusal of UnmountBy where no unmount of the
// volume fails, or has not returned.
var ErrNotStuck = errors.New("no unmount of the volume has failed, or is under way")

// UnmountBy has the unmount of a volume that does not succeed made by a step,
// once, as soon as no call for the volume is in flight. It refuses with
// [ErrNotStuck] where there is none: what may be in use is unmounted by no operator's
// order (rule 5). Once it has returned, [Manager.Volume] shows what comes next.
func (m *Manager) UnmountBy(ctx context.Context, id state.VolumeID, step state.UnmountStep) error {
	if m.cfg.Unmount == nil {
		return errors.ErrUnsupported
	}
	answers := make(chan error, 1)
	m.post(func(l *loop) {
		err := l.order(id, step)
		l.answers = append(l.answers, func() { answers <- err })
	})
	select {
	case err := <-answers:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-m.ended:
		return ErrEnded
	}
}

func (l *loop) order(id state.VolumeID, step state.UnmountStep) error {
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

// fulfil ends an order with the call that it was for: it says nothing of the next one.
func (v *volume) fulfil(s *start, done bool) {
	if o := v.order; o == s.op || done && o.Kind == s.op.Kind && o.Pod == s.op.Pod {
		v.order = plan.Op{}
	}
}

// remove makes Unpublish or Unstage. The step comes first, if there is one: what
// was made of the mount for containers may hang like the mount itself. The driver
// is called in every case, since it may know better, and the kernel has the last word.
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

// callRemove calls Unpublish, and once more for every Publish that was answered OK
// without the effect: a driver whose mounts do not reach the host counts each of
// those as a publication and refuses Unstage until all are undone. A driver that
// counts nothing may refuse to unpublish what is not there, so a definite failure
// of those further calls is no failure of the removal.
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

// addStrayFiles adds to the failure of an Unpublish how many files lie in the target itself,
// if that is why: nothing is mounted there, and a directory that is not empty is not removed.
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
