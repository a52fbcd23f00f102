package isolate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"sync"
	"time"
)

const (
	// defaultWorkers bounds the running calls that are not slow. They wait for the
	// kernel and not for a processor, so a few suffice. Starting a helper costs 25 ms.
	defaultWorkers = 4
	// defaultLimit bounds all helpers, including those that hang: each is a process of
	// some 10 MB, most of it shared.
	defaultLimit = 256
	// slowAfter is how long a call runs before it counts as slow and another may run.
	// If the storage answers, the kernel needs microseconds for a mount.
	slowAfter = 100 * time.Millisecond
	// endGrace is how long Close waits for calls that have not returned.
	endGrace = time.Second
)

// ErrHangs is wrapped by the error of a call that was not started because an earlier
// one for the same key was left behind and has not returned.
var ErrHangs = errors.New("an earlier call hangs")

// ErrLimit is wrapped by the error of a call that was not started because the allowed
// number of calls hang already, in all or of one of its shares ([WithShares]).
var ErrLimit = errors.New("too many calls hang")

// ErrLost is wrapped by the error of a call whose helper ended before the call did.
var ErrLost = errors.New("the helper ended during the call")

// ErrClosed is wrapped by the error of a call made after Close.
var ErrClosed = errors.New("the pool of helpers is closed")

// HangError reports the call that blocks a key, and since when.
type HangError struct {
	Key, Call string
	Since     time.Time
	now       time.Time
}

// NewHangError returns the error for a call that is refused now.
func NewHangError(key, call string, since time.Time) *HangError {
	return &HangError{Key: key, Call: call, Since: since, now: time.Now()}
}

func (e *HangError) Error() string {
	return fmt.Sprintf("%v: %s of %s has not returned since %s (%v)",
		ErrHangs, e.Call, e.Key, e.Since.UTC().Format(time.RFC3339), e.now.Sub(e.Since).Round(time.Second))
}

// Is reports whether target is ErrHangs.
func (e *HangError) Is(target error) bool { return target == ErrHangs }

// Handler makes one kind of call in a helper. Only the handler and its caller interpret
// request and reply. ctx ends when no caller waits for the reply any longer.
type Handler func(ctx context.Context, request []byte) (reply []byte, err error)

// Service is the set of calls that helpers serve.
type Service struct {
	// Handlers are the handlers by call name.
	Handlers map[string]Handler
	// Errors are the errors that errors.Is must find in a handler's error on the
	// caller's side. It always finds system call error numbers.
	Errors []error
	// Memory bounds the additional memory (bytes) that a helper may use for a call, by
	// call name. A call that needs more ends its helper and fails with [ErrLost]. Calls
	// on goroutines, without helpers, are not bounded.
	Memory map[string]int64
}

// Command returns a command, not started, that runs [Serve] with its file descriptor 3:
// for example the embedding program with a special argument.
type Command func() *exec.Cmd

// Config configures a Pool. Service is required.
type Config struct {
	// Command starts a helper. If it is nil, calls run on goroutines of this process: a
	// call that hangs then costs a thread and keeps this process from exiting.
	Command Command
	// Service is what the helpers serve; each helper must have the same.
	Service Service
	// Workers bounds the running calls that are not slow, and Limit all helpers; 0
	// means 4 and 256.
	Workers, Limit int
	// OnReturn is called with the key of every call that was left behind and then
	// returned. It must not block. It may be nil.
	OnReturn func(key string)
	// Logger may be nil: then nothing is logged.
	Logger *slog.Logger
}

// Pool runs calls in helpers. Make one with [New].
type Pool struct {
	cfg Config
	log *slog.Logger

	mu      sync.Mutex // guards the fields below
	closed  bool
	changed chan struct{} // closed and replaced when a helper or a key becomes free
	waiting []*waiter     // in order of arrival
	calls   map[string]*call
	shares  map[string]int // number of calls by share name
	idle    []helper
	total   int // helpers, including idle ones
	running int // calls that are not slow
}

// call is a call in progress.
type call struct {
	name   string
	shares []Share
	since  time.Time
	left   bool          // no caller waits for it
	slow   bool          // no longer counted in Pool.running; true for every call left behind
	over   chan struct{} // closed when it ends
}

func (c *call) ended() bool {
	select {
	case <-c.over:
		return true
	default:
		return false
	}
}

// helper runs calls one after another.
type helper interface {
	// do returns the handler's reply. broken reports that the helper cannot be used
	// again.
	do(ctx context.Context, name string, request []byte) (reply []byte, broken bool, err error)
	// end ends the helper and waits for it; no call may be running in it.
	end()
}

// New returns a Pool. Helpers start when calls need them.
func New(cfg Config) *Pool {
	cfg.Workers, cfg.Limit = cmp.Or(cfg.Workers, defaultWorkers), cmp.Or(cfg.Limit, defaultLimit)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.OnReturn == nil {
		cfg.OnReturn = func(string) {}
	}
	return &Pool{
		cfg: cfg, log: cfg.Logger, changed: make(chan struct{}), calls: map[string]*call{},
		shares: map[string]int{},
	}
}

// Do calls the handler with the given name and returns its reply or error. Only one
// call runs per key: another call waits for it, or fails at once with a [*HangError] if
// it was left behind. If ctx ends first, Do leaves the call behind and returns an error
// that wraps ctx's cause; the call may still take effect.
func (p *Pool) Do(ctx context.Context, key, name string, request []byte) ([]byte, error) {
	c, h, err := p.begin(ctx, key, name)
	if err != nil {
		return nil, err
	}
	type result struct {
		reply []byte
		err   error
	}
	results := make(chan result, 1) // buffered: a call that was left behind must be able to end
	go func() {
		slow := time.AfterFunc(slowAfter, func() { p.markSlow(c) })
		reply, broken, err := h.do(ctx, name, request)
		slow.Stop()
		p.finish(key, c, h, broken)
		results <- result{reply, err}
	}()
	select {
	case r := <-results:
		return r.reply, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-results:
		return r.reply, r.err
	default:
	}
	p.leave(key, c)
	return nil, fmt.Errorf("no answer, the call is left behind: %w", context.Cause(ctx))
}

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

// take returns an idle or new helper if the key is free and the limits allow it. It
// returns nil if another call must end first. p.mu is held.
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
	if n := len(p.idle); n > 0 {
		h := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return h, nil
	}
	if p.total >= p.cfg.Limit {
		for _, c := range p.calls {
			if !c.left {
				return nil, nil
			}
		}
		return nil, fmt.Errorf("%w: %d", ErrLimit, p.total)
	}
	p.total++
	if p.cfg.Command == nil {
		return inside{p.cfg.Service}, nil
	}
	return &process{start: p.cfg.Command, known: p.cfg.Service.Errors}, nil
}

// markSlow lets another call run in addition to c.
func (p *Pool) markSlow(c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !c.slow && !c.ended() {
		c.slow = true
		p.running--
		p.admitWaiting()
	}
}

// leave records that no caller waits for the call.
func (p *Pool) leave(key string, c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.ended() {
		return
	}
	c.left = true
	if !c.slow {
		c.slow = true
		p.running--
	}
	p.admitWaiting()
	p.log.Warn("call hangs and is left behind", "call", c.name, "path", key)
}

// finish releases the key and the helper.
func (p *Pool) finish(key string, c *call, h helper, broken bool) {
	p.mu.Lock()
	keep := !broken && !p.closed && len(p.idle) < p.cfg.Workers
	if !keep {
		p.mu.Unlock()
		h.end()
		p.mu.Lock()
		p.total--
	} else {
		p.idle = append(p.idle, h)
	}
	close(c.over)
	p.count(c.shares, -1)
	delete(p.calls, key)
	if !c.slow {
		p.running--
	}
	left := c.left
	p.admitWaiting()
	p.mu.Unlock()
	if left {
		p.log.Info("call that was left behind has returned", "call", c.name, "path", key, "took", time.Since(c.since))
		p.cfg.OnReturn(key)
	}
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

// Close ends every helper and waits for it. Running calls get a short time to end. The
// error says how many did not; their helpers end when the calls return.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	idle := p.idle
	p.idle = nil
	p.total -= len(idle)
	p.admitWaiting()
	p.mu.Unlock()
	for _, h := range idle {
		h.end()
	}
	grace := time.NewTimer(endGrace)
	defer grace.Stop()
	for over := false; ; {
		p.mu.Lock()
		calls, changed := len(p.calls), p.changed
		p.mu.Unlock()
		switch {
		case calls == 0:
			return nil
		case over:
			return fmt.Errorf("close the pool of helpers: %d of its calls hang", calls)
		}
		select {
		case <-changed:
		case <-grace.C:
			over = true
		}
	}
}
