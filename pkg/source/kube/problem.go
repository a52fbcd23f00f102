package kube

import (
	"maps"
	"slices"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/source"
)

// failed shows what reading the object failed of, nil for nothing.
func (p *Provider) failed(what string, err error, wait time.Duration) {
	if err == nil {
		p.problem(what, "")
		return
	}
	text := explain(err) + "; what was known of it is kept"
	if p.problem(what, text) {
		p.logger.Warn("API server not read", "object", what, "err", err, "retry", wait.Round(time.Millisecond))
	}
}

// problem shows text for what it is about, "" for none, and reports whether that is new.
func (p *Provider) problem(what, text string) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.problems[what] == text {
		return false
	}
	if text == "" {
		delete(p.problems, what)
	} else {
		p.problems[what] = text
	}
	close(p.changed)
	p.changed = make(chan struct{})
	return true
}

// Problems lists what cannot be read, sorted.
func (p *Provider) Problems() []source.Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []source.Problem
	for _, what := range slices.Sorted(maps.Keys(p.problems)) {
		out = append(out, source.Problem{Provider: Name, Where: what, Text: p.problems[what]})
	}
	return out
}

// Changed returns a channel that is closed when Problems next change. Call it
// before Problems.
func (p *Provider) Changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}
