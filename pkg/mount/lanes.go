package mount

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/isolate"
)

// lingerTime is how long a goroutine waits for its next call. The calls of a burst
// follow each other faster, and shortly after one there are none.
const lingerTime = 50 * time.Millisecond

// lanes runs system calls that may hang with their storage. A caller whose
// context ends leaves the call behind; until it returns, the next of the same
// lane fails at once, so that dead storage costs one thread a lane and no time.
type lanes struct {
	mu   sync.Mutex
	busy map[lane]*passage // guarded by mu
	idle []*runner         // guarded by mu
}

// lane is what one call at a time is made of.
type lane struct{ call, path string }

// passage is a call under way; its fields but since are guarded by lanes.mu.
type passage struct {
	since       time.Time
	left, ended bool          // no caller waits for it; it has returned
	over        chan struct{} // closed when it is either; nil until a caller waits for the lane
}

// runner is a goroutine that makes calls one after another. A new one for each
// would have to grow its stack each time.
type runner struct {
	calls chan func() (left bool)
	// ended gets a note for each call that returned and was not left behind. It has
	// room for one, so that a caller who takes it late holds up no other.
	ended chan struct{}
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
	p, r, err := l.enter(ctx, key)
	if err != nil {
		return zero, err
	}
	var got struct { // not read if the call is left behind
		value T
		err   error
	}
	r.calls <- func() bool {
		got.value, got.err = f()
		return l.end(key, p)
	}
	select {
	case <-r.ended:
	case <-ctx.Done():
		if l.leave(p) {
			return zero, fmt.Errorf("the kernel has not answered: %w", context.Cause(ctx))
		}
		<-r.ended // it has just returned
	}
	l.rest(r)
	return got.value, got.err
}

// Aside returns what f returns, which looks at path and may hang with its storage. Where
// ctx ends first f is left behind, and until it returns the next call for the path fails.
func (k *Kernel) Aside(ctx context.Context, path string, f func() error) error {
	_, err := inLane(ctx, k.lanes, lane{"aside", path}, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// enter waits until the lane is free, and takes it and a runner.
func (l *lanes) enter(ctx context.Context, key lane) (*passage, *runner, error) {
	for {
		l.mu.Lock()
		before, taken := l.busy[key]
		if !taken {
			p := &passage{since: time.Now()}
			l.busy[key] = p
			r := l.runner()
			l.mu.Unlock()
			return p, r, nil
		}
		if before.left {
			l.mu.Unlock()
			return nil, nil, isolate.NewHangError(key.path, key.call, before.since)
		}
		if before.over == nil {
			before.over = make(chan struct{})
		}
		over := before.over
		l.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("the kernel has not answered an earlier call: %w", context.Cause(ctx))
		}
	}
}

// runner returns one that has nothing to do; l.mu is held.
func (l *lanes) runner() *runner {
	if n := len(l.idle); n > 0 {
		r := l.idle[n-1]
		l.idle = l.idle[:n-1]
		return r
	}
	r := &runner{calls: make(chan func() bool), ended: make(chan struct{}, 1)}
	go l.serve(r)
	return r
}

func (l *lanes) serve(r *runner) {
	linger := time.NewTimer(lingerTime)
	defer linger.Stop()
	for {
		select {
		case call := <-r.calls:
			if left := call(); left {
				return // without a note: no caller takes it
			}
			r.ended <- struct{}{}
		case <-linger.C:
			if l.retire(r) {
				return
			}
		}
		linger.Reset(lingerTime)
	}
}

// rest gives a runner back whose note was taken.
func (l *lanes) rest(r *runner) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle = append(l.idle, r)
}

// retire takes a runner out of those that are to be had; false says that it was had.
func (l *lanes) retire(r *runner) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.idle, r)
	if i < 0 {
		return false
	}
	l.idle = slices.Delete(l.idle, i, i+1)
	return true
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
	p.tell()
	return true
}

// end notes that the call has returned, and reports whether it was left behind.
func (l *lanes) end(key lane, p *passage) (left bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.busy, key)
	p.ended = true
	if !p.left {
		p.tell()
	}
	return p.left
}

// tell lets those who wait for the lane look again; lanes.mu is held.
func (p *passage) tell() {
	if p.over != nil {
		close(p.over)
	}
}
