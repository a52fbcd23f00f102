package mount

import (
	"context"
	"fmt"
	"sync"
)

// lanes runs system calls that may hang with their storage. A caller whose
// context ends leaves the call behind; until it returns, no second call of the
// same key is begun, so that dead storage costs one thread per key and no more.
type lanes struct {
	mu   sync.Mutex
	busy map[string]chan struct{} // by key: closed when the call returned; guarded by mu
}

// inLane returns what f returns, or the cause of ctx's end where that comes first.
func inLane[T any](ctx context.Context, l *lanes, key string, f func() (T, error)) (T, error) {
	var zero T
	if err := ctx.Err(); err != nil {
		return zero, context.Cause(ctx)
	}
	if ctx.Done() == nil {
		return f()
	}
	done, err := l.enter(ctx, key)
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
		l.mu.Lock()
		delete(l.busy, key)
		l.mu.Unlock()
		results <- result{v, err}
		close(done)
	}()
	select {
	case r := <-results:
		return r.value, r.err
	case <-ctx.Done():
		return zero, fmt.Errorf("the kernel has not answered: %w", context.Cause(ctx))
	}
}

func (l *lanes) enter(ctx context.Context, key string) (chan struct{}, error) {
	for {
		l.mu.Lock()
		before, taken := l.busy[key]
		if !taken {
			done := make(chan struct{})
			l.busy[key] = done
			l.mu.Unlock()
			return done, nil
		}
		l.mu.Unlock()
		select {
		case <-before:
		case <-ctx.Done():
			return nil, fmt.Errorf("the kernel has not answered an earlier call: %w", context.Cause(ctx))
		}
	}
}
