package mount

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
)

// lanes runs system calls that may hang with their storage. A caller whose context ends
// abandons the call; until the call returns, the next one in the same lane fails at once,
// so that dead storage costs one thread per lane and no time.
type lanes struct {
	mu   sync.Mutex
	busy map[lane]*pendingCall // guarded by mu
}

// lane identifies calls that run one at a time.
type lane struct{ call, path string }

// pendingCall is a call under way. lanes.mu guards its fields except since.
type pendingCall struct {
	since     time.Time
	abandoned bool // its caller no longer waits
	returned  bool
	settled   chan struct{} // closed when it is either; nil until a caller waits for the lane
}

// inLane returns the result of f, or the cause of ctx's end if that comes first.
func inLane[T any](ctx context.Context, l *lanes, key lane, f func() (T, error)) (T, error) {
	var zero T
	if err := ctx.Err(); err != nil {
		return zero, context.Cause(ctx)
	}
	if l == nil || ctx.Done() == nil {
		return f()
	}
	p, err := l.enter(ctx, key)
	if err != nil {
		return zero, err
	}
	type result struct {
		value T
		err   error
	}
	answer := make(chan result, 1) // buffered: the caller may have given up
	go func() {
		value, err := f()
		l.end(key, p)
		answer <- result{value, err}
	}()
	select {
	case got := <-answer:
		return got.value, got.err
	case <-ctx.Done():
		if l.leave(p) {
			return zero, fmt.Errorf("the kernel has not answered: %w", context.Cause(ctx))
		}
		got := <-answer // f has just returned
		return got.value, got.err
	}
}

// enter waits until the lane is free, and takes it.
func (l *lanes) enter(ctx context.Context, key lane) (*pendingCall, error) {
	for {
		l.mu.Lock()
		before, taken := l.busy[key]
		if !taken {
			p := &pendingCall{since: time.Now()}
			l.busy[key] = p
			l.mu.Unlock()
			return p, nil
		}
		if before.abandoned {
			l.mu.Unlock()
			return nil, isolate.NewHangError(key.path, key.call, before.since)
		}
		if before.settled == nil {
			before.settled = make(chan struct{})
		}
		settled := before.settled
		l.mu.Unlock()
		select {
		case <-settled:
		case <-ctx.Done():
			return nil, fmt.Errorf("the kernel has not answered an earlier call: %w", context.Cause(ctx))
		}
	}
}

// leftBehind returns an error while an abandoned call of the lane has not returned.
func (l *lanes) leftBehind(key lane) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.busy[key]; p != nil && p.abandoned {
		return isolate.NewHangError(key.path, key.call, p.since)
	}
	return nil
}

// leave abandons the call. It returns false if the call has already returned.
func (l *lanes) leave(p *pendingCall) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.returned {
		return false
	}
	p.abandoned = true
	p.wakeWaiters()
	return true
}

// end notes that the call has returned.
func (l *lanes) end(key lane, p *pendingCall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.busy, key)
	p.returned = true
	if !p.abandoned {
		p.wakeWaiters()
	}
}

// wakeWaiters makes callers that wait for the lane check it again. It must be called with
// lanes.mu held.
func (p *pendingCall) wakeWaiters() {
	if p.settled != nil {
		close(p.settled)
	}
}
