package kube

import (
	"context"
	"sync"
)

// verdict is whether this identity may watch claims, which is so for all of them or
// for none. It is found out by the first that is followed, while the others wait:
// hundreds of them would be refused at a start.
type verdict struct {
	mu       sync.Mutex // guards what follows
	known    bool
	mayWatch bool
	asking   chan struct{} // closed when the caller that asks has ended; nil while none does
}

// ask reports whether claims may be watched. Where that is not known, the caller is to
// find out by watching, and to call done when it has or gives up.
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
			return true, func() { v.asked(asking) }
		}
		v.mu.Unlock()
		select {
		case <-asking:
		case <-ctx.Done():
			return true, func() {}
		}
	}
}

// asked lets the next one ask, if it is that caller's turn still.
func (v *verdict) asked(asking chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.asking == asking {
		close(v.asking)
		v.asking = nil
	}
}

// find notes what was found out, and reports whether that is new.
func (v *verdict) find(mayWatch bool) bool {
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
