package isolate

import (
	"context"
	"slices"
	"time"
)

// waiter is a call that waits for its key or for a helper.
type waiter struct {
	key, name string
	shares    []Share
	admitted  chan admission // buffered, for one admission
}

// admission is the helper for a call that starts, or the error that refuses it.
type admission struct {
	call   *call
	helper helper
	err    error
}

// begin waits for the key and for a helper, and takes both.
func (p *Pool) begin(ctx context.Context, key, name string) (*call, helper, error) {
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	w := &waiter{key: key, name: name, shares: sharesOf(ctx), admitted: make(chan admission, 1)}
	p.mu.Lock()
	if t, ok := p.admit(w); ok {
		p.mu.Unlock()
		return t.call, t.helper, t.err
	}
	p.waiting = append(p.waiting, w)
	p.mu.Unlock()
	select {
	case t := <-w.admitted:
		return t.call, t.helper, t.err
	case <-ctx.Done():
	}
	p.mu.Lock()
	at := slices.Index(p.waiting, w)
	if at >= 0 {
		p.waiting = slices.Delete(p.waiting, at, at+1)
	}
	p.mu.Unlock()
	if at < 0 { // it was admitted in this moment
		if t := <-w.admitted; t.err == nil {
			p.finish(key, t.call, t.helper, false)
		}
	}
	return nil, nil, context.Cause(ctx)
}

// admit starts a call or refuses it. It returns false if the call must wait until
// another one ends. p.mu is held.
func (p *Pool) admit(w *waiter) (admission, bool) {
	h, err := p.take(w)
	if err != nil || h == nil {
		return admission{err: err}, err != nil
	}
	c := &call{name: w.name, shares: w.shares, since: time.Now(), over: make(chan struct{})}
	p.calls[w.key] = c
	p.count(c.shares, 1)
	p.running++
	return admission{call: c, helper: h}, true
}

// take returns a helper if the key is free, the limits allow the call, and a helper is
// idle. It returns nil if another call must end first, or a helper has to start. p.mu is
// held.
func (p *Pool) take(w *waiter) (helper, error) {
	if p.closed {
		return nil, ErrClosed
	}
	if c, busy := p.calls[w.key]; busy {
		if c.left {
			return nil, NewHangError(w.key, c.name, c.since)
		}
		return nil, nil
	}
	if room, err := p.room(w.shares); !room {
		return nil, err
	}
	if p.running >= p.cfg.Workers {
		return nil, nil
	}
	return p.takeHelper()
}

// admitWaiting starts the waiting calls that can start, and leaves the others waiting.
// p.mu is held.
func (p *Pool) admitWaiting() {
	p.waiting = slices.DeleteFunc(p.waiting, func(w *waiter) bool {
		t, ok := p.admit(w)
		if ok {
			w.admitted <- t
		}
		return ok
	})
	close(p.changed)
	p.changed = make(chan struct{})
}

// refuseFirst refuses the first waiting call that needs a new helper, since that helper did
// not start. p.mu is held.
func (p *Pool) refuseFirst(err error) {
	for i, w := range p.waiting {
		_, busy := p.calls[w.key]
		if room, _ := p.room(w.shares); !busy && room {
			w.admitted <- admission{err: err}
			p.waiting = slices.Delete(p.waiting, i, i+1)
			return
		}
	}
}
