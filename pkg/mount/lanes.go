package mount

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/isolate"
)

// lanes runs system calls that may hang with their storage. A caller whose
// context ends leaves the call behind; until it returns, the next of the same
// lane fails at once, so that dead storage costs one thread a lane and no time.
type lanes struct {
	mu   sync.Mutex
	busy map[lane]*passage // guarded by mu
}

// lane is what one call at a time is made of.
type lane struct{ call, path string }

// passage is a call under way; its fields but since are guarded by lanes.mu.
type passage struct {
	since       time.Time
	left, ended bool          // no caller waits for it; it has returned
	over        chan struct{} // closed when it is either; nil until a caller waits for the lane
}

// inLane returns what f returns, or the cause of ctx's end where that comes first.
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
	answer := make(chan result, 1) // with room for what no caller waits for any more
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
		got := <-answer // it has just returned
		return got.value, got.err
	}
}

// Aside returns what f returns, which looks at path and may hang with its storage. Where
// ctx ends first f is left behind, and until it returns the next call for the path fails.
func (k *Kernel) Aside(ctx context.Context, path string, f func() error) error {
	_, err := inLane(ctx, k.lanes, lane{"aside", path}, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// enter waits until the lane is free, and takes it.
func (l *lanes) enter(ctx context.Context, key lane) (*passage, error) {
	for {
		l.mu.Lock()
		before, taken := l.busy[key]
		if !taken {
			p := &passage{since: time.Now()}
			l.busy[key] = p
			l.mu.Unlock()
			return p, nil
		}
		if before.left {
			l.mu.Unlock()
			return nil, isolate.NewHangError(key.path, key.call, before.since)
		}
		if before.over == nil {
			before.over = make(chan struct{})
		}
		over := before.over
		l.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done():
			return nil, fmt.Errorf("the kernel has not answered an earlier call: %w", context.Cause(ctx))
		}
	}
}

// leftBehind returns an error while a call of the lane that was left behind has not returned.
func (l *lanes) leftBehind(key lane) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.busy[key]; p != nil && p.left {
		return isolate.NewHangError(key.path, key.call, p.since)
	}
	return nil
}

// leave notes that the caller has left; false says that it has returned.
func (l *lanes) leave(p *passage) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.ended {
		return false
	}
	p.left = true
	p.wakeWaiters()
	return true
}

// end notes that the call has returned.
func (l *lanes) end(key lane, p *passage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.busy, key)
	p.ended = true
	if !p.left {
		p.wakeWaiters()
	}
}

// wakeWaiters has those that wait for the lane look again; lanes.mu is held.
func (p *passage) wakeWaiters() {
	if p.over != nil {
		close(p.over)
	}
}
