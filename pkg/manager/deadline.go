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

// limited is the context of a call: it ends after a time without an answer, and
// that time begins anew at each call of within.
type limited struct {
	context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	limit  time.Duration // of the driver's answer
	// decided: it goes to the driver, or was withdrawn before it did.
	decided atomic.Bool

	mu    sync.Mutex
	after time.Duration // guarded by mu
	cause error         // why it ends then; guarded by mu
}

// errUnwanted is why a call is ended that works for a pod that has left.
var errUnwanted = errors.New("the pod does not want the volume any more")

// withLimit returns a context that ends after a time, and [limited.end] has to be called.
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

// within has the call end after a time from now, that of a look, by the cause given;
// nil stands for that of a call. It is the call's own timer: a context of the look's
// own would cost a tenth of what the look does.
func (l *limited) within(after time.Duration, cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer.Stop() {
		l.after, l.cause = after, cause
		l.timer.Reset(after)
	}
}

// proceed says that the call goes to the driver now, or why it does not: it has ended,
// or was withdrawn, while the looks before it took their time.
func (l *limited) proceed() error {
	if l.Err() == nil && l.decided.CompareAndSwap(false, true) {
		return nil
	}
	<-l.Done()
	return fmt.Errorf("%w: %w", errNotMade, context.Cause(l))
}

// errNotMade is wrapped by the failure of a call that did not go to the driver.
var errNotMade = errors.New("not made")

// untried reports whether a call was given up before it was made, so that it is no
// attempt that failed: no caller is to wait for it, or to unmount by force. One whose time was
// over before is paced as any other.
func untried(err *state.CallError) bool {
	return err != nil && errors.Is(err, errNotMade) && !errors.Is(err, context.DeadlineExceeded)
}

// withdraw ends a call that did not go to the driver yet.
func (l *limited) withdraw(cause error) {
	if l.decided.CompareAndSwap(false, true) {
		l.cancel(cause)
	}
}

// silent marks the cause of an end by time; it adds nothing to the text.
type silent struct{}

func (silent) Error() string { return "" }
func (silent) Unwrap() error { return context.DeadlineExceeded }

// Err implements context.Context.
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

// restart lets the deadline begin anew.
func (l *limited) restart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer.Stop() {
		l.timer.Reset(l.after)
	}
}

func (l *limited) end() {
	l.timer.Stop()
	l.cancel(context.Canceled)
}

// Progress says how far the call in flight for a volume is, in a sentence for
// people. It is for calls that may take long: one that gets on is not ended for
// the time it takes, but at once when its pod does not want the volume any more.
// It never blocks.
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

// stopUnwanted ends a call where no pod wants any more what it works for, if it
// says how far it is, or did not go to the driver yet. One that says nothing may be
// a driver's, whose work goes on without a waiter.
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
