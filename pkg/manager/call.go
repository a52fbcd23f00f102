package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// begin starts a call, whose intent is durable, on a worker.
func (l *loop) begin(ctx context.Context, s *start) {
	v := l.row(s.id)
	_, changed := l.journal.unsaved[s.id]
	l.setRecord(&s.begun)
	if s.intent != nil || v.announced && !changed {
		delete(l.journal.unsaved, s.id) // the journal has at least these facts
	}
	v.announced = false
	l.changed.push(s.id)
	l.inFlight++
	info := s.driver.info
	c := caller{cfg: l.cfg, driver: s.driver.driver, info: info, again: s.again}
	if l.log.Enabled(ctx, slog.LevelDebug) {
		l.log.Debug("call begins", "volume", s.id, "driver", info.Name, "op", s.op.Kind.String(), "pod", s.op.Pod)
	}
	callCtx := withLimit(ctx, max(callDeadline, info.Deadline+callGrace))
	v.call.ctx, v.call.start = callCtx, s
	if s.op.Step != state.UnmountNormal {
		l.log.Warn("volume is not unmounted normally: data that was not written back may be lost", "volume", s.id, "driver",
			info.Name, "op", s.op.Kind.String(), "pod", s.op.Pod, "step", s.op.Step.String(), "ordered", v.order == s.op)
	}
	unwatch := l.watchSlot(s)
	l.workers.run(func() {
		began := time.Now() // without the durable write since the plan, which is not the driver's time
		r := c.do(callCtx, s.begun, s.op)
		callCtx.end()
		unwatch()
		took := time.Since(began)
		l.m.post(func(l *loop) { l.ended(s, r, began, took) })
	})
}

// ended updates the volume's record with the result of its call.
func (l *loop) ended(s *start, r plan.Result, began time.Time, took time.Duration) {
	v := l.row(s.id)
	l.inFlight--
	c := v.call
	failure := failureOf(r)
	if failure != nil && errors.Is(failure, errStageGone) {
		c.cured = true // the volume is staged again before the next attempt
		l.suspect(s.id)
	}
	if c.slow {
		countSlow(s, -1)
	}
	v.call = nil
	l.endRepeat(s)
	v.endOrder(s, failure == nil)
	l.count(s.driver, s.op, -1)
	now := v.recordOrEmpty()
	if !wasWithdrawn(failure) {
		now = plan.Complete(now, s.op, r, time.Now())
	}
	if c.cured {
		now = plan.Reset(now)
	}
	l.setRecord(&now)
	if s.op.Kind.Removes() && failure == nil {
		l.planDisplaced()
	}
	v.noteDead(s, failure)
	if s.op.Kind.Removes() && len(v.wants) > 0 {
		l.dirty.push(s.id) // it is begun anew, and waits for its turn
	} else {
		l.ahead.push(s.id)
	}
	l.logEnd(c.ctx, s, failure, took)
	if wasWithdrawn(failure) {
		return
	}
	l.reportCall(s, r, began, took)
	if failure != nil {
		s.driver.running.More = s.driver.pace.Failed(l.cfg.Limits, s.id, failure.Code, s.driver.running)
		return
	}
	ended := plan.Call{Kind: s.op.Kind, With: s.callsInFlight, Began: began, Took: took}
	s.driver.running.More = s.driver.pace.Ended(l.cfg.Limits, ended, s.driver.running, s.driver.waits())
	if s.driver.pace.Fast(s.op.Kind) {
		s.driver.running.First = 0
	}
	if s.op.Kind == plan.Expand && l.cfg.OnExpanded != nil {
		l.cfg.OnExpanded(now)
	}
}

// failureOf returns why a call failed; nil if it succeeded, also if a part is missing.
func failureOf(r plan.Result) *state.CallError {
	if r.Err != nil && r.Err.Outcome == state.Partly {
		return nil
	}
	return r.Err
}

// logEnd logs the end of a call, in one line.
func (l *loop) logEnd(ctx context.Context, s *start, failure *state.CallError, took time.Duration) {
	level, text := slog.LevelInfo, "call done"
	if failure != nil {
		level, text = slog.LevelWarn, "call failed"
	}
	attrs := make([]slog.Attr, 0, 7)
	attrs = append(attrs, slog.String("volume", string(s.id)), slog.String("driver", string(s.driver.status.Name)),
		slog.String("op", s.op.Kind.String()), slog.Duration("took", took))
	if s.op.Pod != "" {
		attrs = append(attrs, slog.String("pod", string(s.op.Pod)))
	}
	if failure != nil {
		attrs = append(attrs, slog.String("err", failure.Error()), slog.String("outcome", failure.Outcome.String()))
	}
	l.log.LogAttrs(ctx, level, text, attrs...)
}

// caller makes one call and checks its answer against the kernel (rule 6).
type caller struct {
	cfg    *Config // never changed
	driver Driver
	info   *DriverInfo // never changed
	again  []state.PodUID
}

// rpc returns the name of a verb's RPC, for failures that do not name one.
func rpc(k plan.Kind) string {
	switch k {
	case plan.Attach:
		return "ControllerPublishVolume"
	case plan.Detach:
		return "ControllerUnpublishVolume"
	case plan.Republish:
		return "NodePublishVolume"
	default:
		return "Node" + k.String() + "Volume"
	}
}

// errPanic is wrapped by the failure of a call whose code panicked.
var errPanic = errors.New("panic")

// do makes the call. If the code of a driver in this process panics, the outcome of the call
// is uncertain, and other volumes are not affected.
func (c caller) do(ctx *callContext, v state.Volume, op plan.Op) (r plan.Result) {
	defer func() {
		if p := recover(); p != nil {
			c.cfg.Logger.Error("call panicked", "volume", v.ID, "driver", c.info.Name, "op", op.Kind.String(), "pod", op.Pod,
				"panic", p, "stack", string(debug.Stack()))
			r = plan.Result{Err: &state.CallError{
				Outcome: state.Uncertain, Call: rpc(op.Kind),
				Err: fmt.Errorf("%w: %v", errPanic, p),
			}}
		}
	}()
	err := c.checkStaged(ctx, v, op)
	if err == nil {
		err = c.checkElsewhere(ctx, v, op)
	}
	if err == nil {
		err = ctx.proceed()
	}
	if err == nil {
		c.unpublishFirst(ctx, v, op)
		err = c.unpublishAgain(ctx, v)
	}
	if err == nil {
		err = c.call(ctx, v, op, &r)
	}
	if part, ok := errors.AsType[*state.CallError](err); ok && part.Outcome == state.Partly {
		r.Err, err = part, nil
	}
	if err == nil {
		ctx.setDeadline(lookDeadline, errNoLook)
		err = c.verify(ctx, v, op, &r)
	}
	if err != nil && op.Kind == plan.Unpublish {
		err = c.addStrayFiles(ctx, v.Mounts[op.Pod].Target, err)
	}
	if err != nil {
		r.Err = c.withReason(state.AsCallError(rpc(op.Kind), err))
	}
	return r
}

// withReason returns e with its reason code, if the code is known and missing.
func (c caller) withReason(e *state.CallError) *state.CallError {
	with := *e
	switch {
	case e.Reason != "":
	case errors.Is(e, ErrNoEffect):
		with.Reason = state.NoEffect
	case c.info.Builtin && c.cfg.Reason != nil:
		with.Reason = c.cfg.Reason(e)
	}
	return &with
}

func (c caller) call(ctx context.Context, v state.Volume, op plan.Op, r *plan.Result) (err error) {
	if c.cfg.Within != nil {
		ctx = c.cfg.Within(ctx, v)
	}
	switch op.Kind {
	case plan.Attach:
		r.PublishContext, err = c.cfg.Attacher.Attach(ctx, v)
	case plan.Detach:
		err = c.cfg.Attacher.Detach(ctx, v)
	case plan.Stage:
		err = c.driver.Stage(ctx, v)
	case plan.Unstage, plan.Unpublish:
		err = c.remove(ctx, v, op)
	case plan.Publish, plan.Republish:
		r.RenewAt, err = c.driver.Publish(ctx, v, op.Pod)
		err = markNoEffect(err)
	case plan.Expand:
		r.SizeBytes, err = c.expand(ctx, v, op)
	default:
		panic("call of " + op.Kind.String())
	}
	if ctx.Err() != nil && err != nil && errors.Is(err, ctx.Err()) {
		return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
	}
	return err
}

// errNoLook is the cause of a look at the kernel that timed out.
var errNoLook = fmt.Errorf("no answer from the kernel within %v", lookDeadline)

// errStageGone is wrapped by the failure of a Publish that was not made because the stage
// is gone.
var errStageGone = errors.New("the volume is no longer staged")

// checkStaged checks before a Publish that the volume is still staged: a driver bind-mounts
// whatever is at the staging path, and that may be an empty directory on the node's own
// disk, which the pod would write to. A look that fails does not prevent the call, since
// the driver knows its storage. No look at the mount can rule out that the stage vanishes
// just before the driver binds it.
func (c caller) checkStaged(ctx context.Context, v state.Volume, op plan.Op) error {
	if op.Kind != plan.Publish || !v.Needs.Stage || !v.Staged.Mounted {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, lookDeadline, errNoLook)
	defer cancel()
	if seen, err := c.cfg.Kernel.Look(ctx, v.Spec.StagePath); err == nil && !seen.Mounted {
		return fmt.Errorf("%w: nothing is mounted at %s", errStageGone, v.Spec.StagePath)
	}
	return c.checkAlive(ctx, v, v.Spec.StagePath)
}

// ErrNoEffect is wrapped by the failure of a call that the driver answered OK although the
// kernel does not show its effect.
var ErrNoEffect = errors.New("answered OK without the effect")

// markNoEffect wraps ErrNoEffect in the failure of a call if the driver's client found that a call without an
// effect was answered OK.
func markNoEffect(err error) error {
	found, ok := errors.AsType[*state.CallError](err)
	if !ok || found.Reason != state.NoEffect || errors.Is(err, ErrNoEffect) {
		return err
	}
	e := *found
	e.Err = fmt.Errorf("%w: %w", ErrNoEffect, e.Err)
	return &e
}

// verify checks the effect of a call that was answered OK. It stores what the kernel shows
// at the call's path in r.Seen.
func (c caller) verify(ctx context.Context, v state.Volume, op plan.Op, r *plan.Result) error {
	path := v.Mounts[op.Pod].Target
	switch op.Kind {
	case plan.Attach, plan.Detach:
		return nil // the kernel of this node does not show it
	case plan.Expand:
		if r.SizeBytes != 0 && r.SizeBytes < op.SizeBytes {
			return fmt.Errorf("%w: the volume has %d bytes, %d were requested", ErrNoEffect, r.SizeBytes, op.SizeBytes)
		}
		return nil
	case plan.Stage, plan.Unstage:
		path = v.Spec.StagePath
	}
	seen, err := c.cfg.Kernel.Look(ctx, path)
	if err != nil {
		return fmt.Errorf("look at %s after the call: %w", path, err)
	}
	r.Seen = seen
	switch {
	case op.Kind.Removes() && seen.Mounted:
		return fmt.Errorf("%w: %s is still a mount point", ErrNoEffect, path)
	case op.Kind.Removes():
		return nil
	case !seen.Exists:
		return fmt.Errorf("%w: there is nothing at %s", ErrNoEffect, path)
	case op.Kind != plan.Stage && c.info.MountsTarget && v.Spec.Mode != state.Block && !seen.Mounted:
		return fmt.Errorf("%w: nothing is mounted at %s", ErrNoEffect, path)
	case op.Kind != plan.Stage && c.info.MountsTarget && v.Spec.Mode == state.Block && !seen.BlockDevice:
		return fmt.Errorf("%w: there is no block device at %s", ErrNoEffect, path)
	case op.Kind != plan.Republish && seen.Mounted:
		return c.checkAlive(ctx, v, path)
	}
	return nil
}
