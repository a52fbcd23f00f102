package manager

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// callContext is the context of a call. It ends after a time without an answer; setDeadline starts
// that time again.
type callContext struct {
	context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	limit  time.Duration // for the driver's answer
	// decided: the call was passed to the driver, or was withdrawn before that.
	decided atomic.Bool

	mu    sync.Mutex
	after time.Duration // when the context ends, counted from the timer's start; guarded by mu
	cause error         // why it ends then, nil for the default; guarded by mu
}

// errUnwanted is the cause with which a call is ended that only serves a pod that has left.
var errUnwanted = errors.New("the pod no longer wants the volume")

// withLimit returns a context that ends after a time. The caller must call [callContext.end].
func withLimit(ctx context.Context, after time.Duration) *callContext {
	base, cancel := context.WithCancelCause(ctx)
	c := &callContext{Context: base, cancel: cancel, limit: after, after: after}
	c.timer = time.AfterFunc(after, c.expire)
	return c
}

// expire ends the context because its time is over.
func (c *callContext) expire() {
	c.mu.Lock()
	after, cause := c.after, c.cause
	c.mu.Unlock()
	if cause == nil {
		cause = fmt.Errorf("no answer within %v%w", after, silent{})
	}
	c.cancel(cause)
}

// setDeadline makes the context end after a time from now, with cause; if that is nil, with the
// default, that the driver has not answered. It bounds a look at the kernel with the call's
// own timer: a context of its own would cost a tenth of what the look costs.
func (c *callContext) setDeadline(after time.Duration, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer.Stop() {
		c.after, c.cause = after, cause
		c.timer.Reset(after)
	}
}

// proceed returns nil if the call may be passed to the driver now, or the reason why not: it
// has ended or was withdrawn during the looks before it.
func (c *callContext) proceed() error {
	if c.Err() == nil && c.decided.CompareAndSwap(false, true) {
		return nil
	}
	<-c.Done()
	return fmt.Errorf("%w: %w", errNotMade, context.Cause(c))
}

// errNotMade is wrapped by the failure of a call that was not passed to the driver.
var errNotMade = errors.New("not made")

// wasWithdrawn reports whether a call was withdrawn before it was made. Then it is not a failed
// attempt: it causes no pause and does not count towards a forced unmount. A call that timed
// out before it was made counts like any other failure.
func wasWithdrawn(err *state.CallError) bool {
	return err != nil && errors.Is(err, errNotMade) && !errors.Is(err, context.DeadlineExceeded)
}

// withdraw ends a call that was not passed to the driver yet.
func (c *callContext) withdraw(cause error) {
	if c.decided.CompareAndSwap(false, true) {
		c.cancel(cause)
	}
}

// silent makes an error match context.DeadlineExceeded and adds nothing to its text.
type silent struct{}

func (silent) Error() string { return "" }
func (silent) Unwrap() error { return context.DeadlineExceeded }

// Err implements context.Context. It returns DeadlineExceeded if the time was over.
func (c *callContext) Err() error {
	err := c.Context.Err()
	if err == nil {
		return nil
	}
	if cause := context.Cause(c.Context); cause == errNoLook || errors.Is(cause, context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return err
}

// restart starts the time again.
func (c *callContext) restart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer.Stop() {
		c.timer.Reset(c.after)
	}
}

// end releases the context's resources.
func (c *callContext) end() {
	c.timer.Stop()
	c.cancel(context.Canceled)
}

// Progress reports how far the call in flight for a volume is, in a sentence for people.
// It is for calls that may take long: each report starts the call's deadline again, and a
// call that reports progress is ended when its pod no longer wants the volume. Progress
// never blocks.
func (m *Manager) Progress(id state.VolumeID, text string) {
	m.post(func(l *loop) {
		v := l.volumes[id]
		if v == nil || v.call == nil || v.call.ctx == nil {
			return
		}
		v.call.progress = text
		l.changed.push(id)
		v.call.ctx.restart()
		v.stopUnwanted()
	})
}

// stopUnwanted ends a Publish whose pod no longer wants the volume, if the call reports
// progress or was not passed to the driver yet. Any other call may be running in a driver,
// which would go on working after the call was cancelled.
func (v *volume) stopUnwanted() {
	c := v.call
	if c == nil || c.op.Kind != plan.Publish || c.ctx == nil {
		return
	}
	if _, wants := v.wants[c.op.Pod]; wants {
		return
	}
	c.ctx.withdraw(errUnwanted)
	if c.progress != "" {
		c.ctx.cancel(errUnwanted)
	}
}
