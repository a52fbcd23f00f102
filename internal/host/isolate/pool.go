package isolate

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"sync"
	"time"
)

const (
	// defaultWorkers bounds the running calls that are not slow. They wait for the
	// kernel and not for a processor, so a few suffice.
	defaultWorkers = 4
	// defaultLimit bounds all helpers, including those that hang: each is a process of
	// some 10 MB, most of it shared.
	defaultLimit = 256
	// slowAfter is how long a call runs before it counts as slow and another may run, and as much
	// more for each slow one, up to slowMost. If the storage answers, the kernel needs microseconds
	// for a mount. On a busy machine it also waits for its own locks and for the end of what other
	// processors read, and one more helper would wait for the same.
	slowAfter = 100 * time.Millisecond
	slowMost  = 2 * time.Second
	// starvedLooks bounds how often slowAfter begins anew for a call that only lacks a
	// processor: one more helper would compete with it.
	starvedLooks = 20
	// endGrace is how long Close waits for calls that have not returned.
	endGrace = time.Second
)

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
	running int            // calls that are not slow
	slow    int            // those that are
	helpers
}

// call is a call in progress.
type call struct {
	name   string
	shares []Share
	since  time.Time
	left   bool          // no caller waits for it
	slow   bool          // no longer counted in Pool.running; true for every call left behind
	watch  *time.Timer   // makes it slow; nil until it has reached its helper
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
	// start starts the helper, and returns when it can take a call.
	start() error
	// do returns the handler's reply. broken reports that the helper cannot be used
	// again. do calls begun when the helper has the call; stuck then reports whether the
	// call waits for something other than a processor.
	do(ctx context.Context, m message, begun func(stuck func() bool)) (reply []byte, broken bool, err error)
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
	p := &Pool{
		cfg: cfg, log: cfg.Logger, changed: make(chan struct{}), calls: map[string]*call{},
		shares: map[string]int{},
	}
	p.newHelper = func() helper {
		if cfg.Command == nil {
			return inside{cfg.Service}
		}
		return &process{command: cfg.Command, known: cfg.Service.Errors}
	}
	return p
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
		m := message{Call: name, Request: request}
		reply, broken, err := h.do(ctx, m, func(stuck func() bool) { p.watchSlow(c, stuck, 1) })
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

// watchSlow marks c as slow after slowAfter and more, or later while it only lacks a processor.
func (p *Pool) watchSlow(c *call, stuck func() bool, look int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.ended() {
		return
	}
	c.watch = time.AfterFunc(min(slowAfter*time.Duration(1+p.slow), slowMost), func() {
		if look < starvedLooks && !stuck() {
			p.watchSlow(c, stuck, look+1)
		} else {
			p.markSlow(c)
		}
	})
}

// markSlow lets another call run in addition to c.
func (p *Pool) markSlow(c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !c.slow && !c.ended() {
		p.countSlow(c)
		p.admitWaiting()
	}
}

// countSlow no longer counts c among the running calls. p.mu is held.
func (p *Pool) countSlow(c *call) {
	c.slow = true
	p.running--
	p.slow++
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
		p.countSlow(c)
	}
	p.admitWaiting()
	p.log.Warn("call hangs and is left behind", "call", c.name, "path", key)
}

// finish releases the key and the helper.
func (p *Pool) finish(key string, c *call, h helper, broken bool) {
	p.mu.Lock()
	if c.watch != nil {
		c.watch.Stop()
	}
	p.putBack(h, broken)
	close(c.over)
	p.count(c.shares, -1)
	delete(p.calls, key)
	if c.slow {
		p.slow--
	} else {
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

// Close ends every helper and waits for it. Running calls get a short time to end. The
// error says how many did not; their helpers end when the calls return.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	p.admitWaiting()
	if p.trim != nil {
		p.trim.Stop()
	}
	p.endIdle(len(p.idle))
	p.mu.Unlock()
	grace := time.NewTimer(endGrace)
	defer grace.Stop()
	for over := false; ; {
		p.mu.Lock()
		calls, total, changed := len(p.calls), p.total, p.changed
		p.mu.Unlock()
		switch {
		case total == 0 || over && calls == 0: // a helper that still starts ends when it has started
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
