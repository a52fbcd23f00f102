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

// limited is the context of a call. It ends after a time without an answer; within starts
// that time again.
type limited struct {
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

// withLimit returns a context that ends after a time. The caller must call [limited.end].
func withLimit(ctx context.Context, after time.Duration) *limited {
	base, cancel := context.WithCancelCause(ctx)
	l := &limited{Context: base, cancel: cancel, limit: after, after: after}
	l.timer = time.AfterFunc(after, l.expire)
	return l
}

func (l *limited) expire() {
	l.mu.Lock()
	after, cause := l.after, l.cause
	l.mu.Unlock()
	if cause == nil {
		cause = fmt.Errorf("no answer within %v%w", after, silent{})
	}
	l.cancel(cause)
}

// within makes the context end after a time from now, with cause; if that is nil, with the
// default, that the driver has not answered. It bounds a look at the kernel with the call's
// own timer: a context of its own would cost a tenth of what the look costs.
func (l *limited) within(after time.Duration, cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer.Stop() {
		l.after, l.cause = after, cause
		l.timer.Reset(after)
	}
}

// proceed returns nil if the call may be passed to the driver now, or the reason why not: it
// has ended or was withdrawn during the looks before it.
func (l *limited) proceed() error {
	if l.Err() == nil && l.decided.CompareAndSwap(false, true) {
		return nil
	}
	<-l.Done()
	return fmt.Errorf("%w: %w", errNotMade, context.Cause(l))
}

// errNotMade is wrapped by the failure of a call that was not passed to the driver.
var errNotMade = errors.New("not made")

// untried reports whether a call was withdrawn before it was made. Then it is not a failed
// attempt: it causes no pause and does not count towards a forced unmount. A call that timed
// out before it was made counts like any other failure.
func untried(err *state.CallError) bool {
	return err != nil && errors.Is(err, errNotMade) && !errors.Is(err, context.DeadlineExceeded)
}

// withdraw ends a call that was not passed to the driver yet.
func (l *limited) withdraw(cause error) {
	if l.decided.CompareAndSwap(false, true) {
		l.cancel(cause)
	}
}

// silent makes an error match context.DeadlineExceeded and adds nothing to its text.
type silent struct{}

func (silent) Error() string { return "" }
func (silent) Unwrap() error { return context.DeadlineExceeded }

// Err implements context.Context. It returns DeadlineExceeded if the time was over.
func (l *limited) Err() error {
	err := l.Context.Err()
	if err == nil {
		return nil
	}
	if cause := context.Cause(l.Context); cause == errNoLook || errors.Is(cause, context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return err
}

// restart starts the time again.
func (l *limited) restart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer.Stop() {
		l.timer.Reset(l.after)
	}
}

// end releases the context's resources.
func (l *limited) end() {
	l.timer.Stop()
	l.cancel(context.Canceled)
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
