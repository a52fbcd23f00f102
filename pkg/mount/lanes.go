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

// passage is a call under way; its fields but done are guarded by lanes.mu.
type passage struct {
	since time.Time
	left  bool          // nobody waits for it
	done  chan struct{} // closed when it has returned, or was left
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
	results := make(chan result, 1) // so that an abandoned call can end
	go func() {
		v, err := f()
		results <- result{v, err}
		l.end(key, p)
	}()
	select {
	case r := <-results:
		return r.value, r.err
	case <-ctx.Done():
		l.leave(p)
		return zero, fmt.Errorf("the kernel has not answered: %w", context.Cause(ctx))
	}
}

func (l *lanes) enter(ctx context.Context, key lane) (*passage, error) {
	for {
		l.mu.Lock()
		before, taken := l.busy[key]
		if !taken {
			p := &passage{since: time.Now(), done: make(chan struct{})}
			l.busy[key] = p
			l.mu.Unlock()
			return p, nil
		}
		left := before.left
		l.mu.Unlock()
		if left {
			return nil, isolate.NewHangError(key.path, key.call, before.since)
		}
		select {
		case <-before.done:
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

func (l *lanes) leave(p *passage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !p.left {
		p.left = true
		close(p.done)
	}
}

func (l *lanes) end(key lane, p *passage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.busy, key)
	if !p.left {
		p.left = true
		close(p.done)
	}
}
