package kube

import (
	"context"
	"sync"
)

// verdict is whether this identity may watch claims, which is the same for all claims. The first
// follower of a claim finds out while the others wait; otherwise hundreds of requests would be
// refused at a start.
type verdict struct {
	mu       sync.Mutex // guards the fields below
	known    bool
	mayWatch bool
	asking   chan struct{} // closed when the caller that is finding out has ended; nil if there is none
}

// ask reports whether claims may be watched. If that is unknown, the caller must find out by
// watching, and call done when it knows or gives up.
func (v *verdict) ask(ctx context.Context) (mayWatch bool, done func()) {
	for {
		v.mu.Lock()
		if v.known {
			defer v.mu.Unlock()
			return v.mayWatch, func() {}
		}
		asking := v.asking
		if asking == nil {
			asking = make(chan struct{})
			v.asking = asking
			v.mu.Unlock()
			return true, func() { v.release(asking) }
		}
		v.mu.Unlock()
		select {
		case <-asking:
		case <-ctx.Done():
			return true, func() {}
		}
	}
}

// release lets the next caller ask, unless another caller already does.
func (v *verdict) release(asking chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.asking == asking {
		close(v.asking)
		v.asking = nil
	}
}

// set stores the verdict and reports whether it is new.
func (v *verdict) set(mayWatch bool) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	isNew := !v.known || v.mayWatch != mayWatch
	v.known, v.mayWatch = true, mayWatch
	if v.asking != nil {
		close(v.asking)
		v.asking = nil
	}
	return isNew
}
