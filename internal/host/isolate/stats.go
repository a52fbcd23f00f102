package isolate

import "time"

// Hang is a call that was left behind and has not returned.
type Hang struct {
	Key, Call string
	Since     time.Time
}

// Stats describes a pool at one moment.
type Stats struct {
	// Helpers is the number of helpers.
	Helpers int
	// Hung lists the calls that were left behind; each occupies a helper.
	Hung []Hang
}

// Hung returns a [*HangError] if a call for key was left behind and has not returned,
// otherwise nil.
func (p *Pool) Hung(key string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.calls[key]; c != nil && c.left {
		return NewHangError(key, c.name, c.since)
	}
	return nil
}

// Idle returns a channel that is closed when the call for key that runs now has returned,
// even if it was left behind, or that is closed already if there is none.
func (p *Pool) Idle(key string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.calls[key]; c != nil {
		return c.over
	}
	over := make(chan struct{})
	close(over)
	return over
}

// Stats returns the pool's current Stats.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Stats{Helpers: p.total}
	for key, c := range p.calls {
		if c.left {
			s.Hung = append(s.Hung, Hang{Key: key, Call: c.name, Since: c.since})
		}
	}
	return s
}
