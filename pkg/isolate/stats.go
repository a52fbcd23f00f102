package isolate

import "time"

// Hang is a call that was left behind and has not returned.
type Hang struct {
	Key, Call string
	Since     time.Time
}

// Stats is what a pool has at a moment.
type Stats struct {
	// Helpers counts helpers, Hung lists the calls that were left behind, which
	// have one each.
	Helpers int
	Hung    []Hang
}

// Left returns a [*HangError] while a call for key that was left behind has not
// returned, else nil.
func (p *Pool) Left(key string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.calls[key]; c != nil && c.left {
		return NewHangError(key, c.name, c.since)
	}
	return nil
}

// Stats returns what the pool has now.
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
