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
	// defaultWorkers bounds the calls that run and are not slow. They wait for the
	// kernel and not for a processor, so a few suffice; a helper costs 25 ms to start.
	defaultWorkers = 4
	// defaultLimit bounds all helpers, those that hang included: each is a process
	// of some 10 MB, most of it shared.
	defaultLimit = 256
	// slowAfter is when a call makes room for others: what the kernel does for a
	// mount takes microseconds where storage answers.
	slowAfter = 100 * time.Millisecond
	// endGrace is how long Close waits for calls that have not returned: one that
	// was left behind may be about to.
	endGrace = time.Second
)

// ErrHangs is wrapped by the failure of a call that was not begun, because an
// earlier one for the same key was left behind and has not returned.
var ErrHangs = errors.New("an earlier call hangs")

// ErrLimit is wrapped by the failure of a call that was not begun because as
// many calls hang as may, of all or of one of its shares ([WithShares]).
var ErrLimit = errors.New("too many calls hang")

// ErrLost is wrapped by the failure of a call whose helper ended before the call did.
var ErrLost = errors.New("the helper ended during the call")

// ErrClosed is wrapped by the failure of a call after Close.
var ErrClosed = errors.New("the pool of helpers is closed")

// HangError says which call a key is waited for, and since when.
type HangError struct {
	Key, Call string
	Since     time.Time
	now       time.Time
}

// NewHangError returns the error of a call that is not begun now.
func NewHangError(key, call string, since time.Time) *HangError {
	return &HangError{Key: key, Call: call, Since: since, now: time.Now()}
}

func (e *HangError) Error() string {
	return fmt.Sprintf("%v: %s of %s has not returned since %s (%v)",
		ErrHangs, e.Call, e.Key, e.Since.UTC().Format(time.RFC3339), e.now.Sub(e.Since).Round(time.Second))
}

// Is makes it an ErrHangs.
func (e *HangError) Is(target error) bool { return target == ErrHangs }

// Handler does one kind of call. It runs in a helper; request and reply are its own business.
// ctx ends when no caller waits for the reply any more.
type Handler func(ctx context.Context, request []byte) (reply []byte, err error)

// Service is what helpers do.
type Service struct {
	// Handlers are by the name of their call.
	Handlers map[string]Handler
	// Errors are those that errors.Is is to find in what a handler returned,
	// besides system call numbers, which it always does.
	Errors []error
	// Memory bounds what a helper may take for the calls of a name beside what it has (bytes). A call
	// that takes more ends its helper, and fails with [ErrLost]. It does not bound
	// the goroutines that are there in place of helpers.
	Memory map[string]int64
}

// Command returns a command, not started, that ends up in [Serve] with its file
// descriptor 3: the embedding program with an argument of its own, for instance.
type Command func() *exec.Cmd

// Config of a Pool. Service is required.
type Config struct {
	// Command starts a helper. Nil means that calls run on goroutines of this
	// process: one that hangs then costs a thread, and keeps this process from ending.
	Command Command
	// Service is what is done; a helper's is to have the same.
	Service Service
	// Workers bounds calls that run and are not slow, Limit all helpers; 0 means 4 and 256.
	Workers, Limit int
	// OnReturn is called with the key of every call that was left behind and returned
	// after all. It must not block. It may be nil.
	OnReturn func(key string)
	// Logger nil means no log.
	Logger *slog.Logger
}

// Pool runs calls in helpers. Make one with [New].
type Pool struct {
	cfg Config
	log *slog.Logger

	mu      sync.Mutex // guards what follows
	closed  bool
	changed chan struct{} // closed and replaced when a helper or a key gets free
	waiting []*waiter     // in order of arrival
	calls   map[string]*call
	shares  map[string]int // calls by the name of their shares
	idle    []helper
	total   int // helpers, idle ones included
	running int // calls that are not slow
}

// call is one under way.
type call struct {
	name   string
	shares []Share
	since  time.Time
	left   bool // no caller waits for it
	slow   bool // or left: counts as running no more
	ended  bool
}

// helper runs calls one after another.
type helper interface {
	// do returns the handler's reply. broken says that the helper is of no use any more.
	do(ctx context.Context, name string, request []byte) (reply []byte, broken bool, err error)
	// end ends it and waits for that; no call is under way in it.
	end()
}

// New returns a Pool. It starts nothing; the first call does.
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

// Do has the handler of that name called, and returns its reply or error. One
// call is under way for a key: another waits for it, or fails at once with a
// [*HangError] if it was left behind. When ctx ends first, the call is left
// behind and the error wraps ctx's cause; whether it takes effect is not known.
func (p *Pool) Do(ctx context.Context, key, name string, request []byte) ([]byte, error) {
	c, h, err := p.begin(ctx, key, name)
	if err != nil {
		return nil, err
	}
	type result struct {
		reply []byte
		err   error
	}
	results := make(chan result, 1) // so that a call that was left can end
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
	admitted  chan admission // has room for the one that comes
}

// admission is what a call begins with, or why it does not.
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
	if at < 0 { // its turn has just come
		if t := <-w.admitted; t.err == nil {
			p.finish(key, t.call, t.helper, false)
		}
	}
	return nil, nil, context.Cause(ctx)
}

// admit begins a call, or says why it is not to begin; false says that something
// has to end first. p.mu is held.
func (p *Pool) admit(w *waiter) (admission, bool) {
	h, err := p.take(w)
	if err != nil || h == nil {
		return admission{err: err}, err != nil
	}
	c := &call{name: w.name, shares: w.shares, since: time.Now()}
	p.calls[w.key] = c
	p.count(c.shares, 1)
	p.running++
	return admission{call: c, helper: h}, true
}

// take returns a helper if the key is free, its shares have room and a helper is
// free, or may be started; none where something has to end first. p.mu is held.
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

// markSlow lets another call run beside c.
func (p *Pool) markSlow(c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !c.slow && !c.ended {
		c.slow = true
		p.running--
		p.admitWaiting()
	}
}

// leave notes that the caller has left.
func (p *Pool) leave(key string, c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.ended {
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

// finish gives key and helper back.
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
	c.ended = true
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

// admitWaiting starts waiting calls as far as there are helpers, and leaves the
// others asleep; p.mu is held.
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

// Close ends every helper and waits for that. Calls under way have a moment to
// end. How many do not is in the error; their helpers end when their calls return.
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
