package isolate

import (
	"fmt"
	"slices"
	"time"
)

const (
	// startMost is how long a helper's start keeps the pool from starting another one. A
	// start needs some 10 ms of a processor, which on a busy machine take seconds; two starts
	// at once would take longer, and one helper serves thousands of calls a second.
	startMost = 10 * time.Second
	// idleMost is how long helpers beyond [Config.Workers] are kept without a call.
	idleMost = time.Minute
)

// helpers are the helpers of a pool.
type helpers struct {
	newHelper func() helper // returns one that has not started

	idle     []idle // the one used last is the last
	starting helper // the helper whose start others wait for; nil if there is none
	total    int    // including those that are idle or start
	trim     *time.Timer
}

// idle is a helper without a call.
type idle struct {
	helper helper
	since  time.Time
}

// takeHelper returns an idle helper. If there is none, it starts one, unless one starts
// already, and returns nil. p.mu is held.
func (p *Pool) takeHelper() (helper, error) {
	if n := len(p.idle); n > 0 {
		h := p.idle[n-1].helper
		p.idle = p.idle[:n-1]
		return h, nil
	}
	if p.starting != nil {
		return nil, nil
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
	h := p.newHelper()
	if _, here := h.(inside); here {
		return h, nil // a goroutine needs no start
	}
	p.starting = h
	go p.startHelper(h)
	return nil, nil
}

// startHelper starts h for the calls that wait. If it does not start, the first of them fails.
func (p *Pool) startHelper(h helper) {
	late := time.AfterFunc(startMost, func() { p.stopWaitingFor(h) })
	err := h.start()
	late.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.starting == h {
		p.starting = nil
	}
	if err != nil {
		p.total--
		p.refuseFirst(err)
	} else {
		p.putBack(h, false)
	}
	p.admitWaiting()
}

// stopWaitingFor lets another helper start, since the start of h hangs.
func (p *Pool) stopWaitingFor(h helper) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.starting == h {
		p.log.Warn("a helper does not start", "after", startMost)
		p.starting = nil
		p.admitWaiting()
	}
}

// putBack makes h idle, or ends it. p.mu is held, but not while h ends.
func (p *Pool) putBack(h helper, broken bool) {
	if broken || p.closed {
		p.end(h)
		return
	}
	p.idle = append(p.idle, idle{h, time.Now()})
	p.trimLater()
}

// end ends helpers that are not idle. p.mu is held, but not while they end.
func (p *Pool) end(hs ...helper) {
	p.mu.Unlock()
	for _, h := range hs {
		h.end()
	}
	p.mu.Lock()
	p.total -= len(hs)
}

// trimLater has helpers beyond Workers ended when they were idle for idleMost. p.mu is held.
func (p *Pool) trimLater() {
	if p.trim == nil && len(p.idle) > p.cfg.Workers {
		p.trim = time.AfterFunc(time.Until(p.idle[0].since.Add(idleMost)), p.trimIdle)
	}
}

func (p *Pool) trimIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trim = nil
	old := 0
	for old < len(p.idle)-p.cfg.Workers && time.Since(p.idle[old].since) >= idleMost {
		old++
	}
	p.endIdle(old)
	if !p.closed {
		p.trimLater()
	}
	p.admitWaiting()
}

// endIdle ends the n helpers that were idle longest. p.mu is held, but not while they end.
func (p *Pool) endIdle(n int) {
	var hs []helper
	for _, i := range p.idle[:n] {
		hs = append(hs, i.helper)
	}
	p.idle = slices.Delete(p.idle, 0, n)
	p.end(hs...)
}
