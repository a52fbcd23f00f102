package kube

import (
	"maps"
	"slices"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/outage"
)

// failed shows what reading the object failed of, nil for nothing.
func (p *Provider) failed(what string, err error, wait time.Duration) {
	if err == nil {
		p.problem(outage.Finding{What: what})
		return
	}
	f := outage.Finding{What: what, Cause: outage.CauseOf(err), Reason: outage.Explain(err)}
	f.Text = f.Reason + "; what was known of it is kept"
	f.Vital = what == p.whatPods() || what == p.whatNode()
	if p.problem(f) {
		p.logger.Warn("API server not read", "object", what, "err", err, "retry", wait.Round(time.Millisecond))
	}
}

// whatPods and whatNode name what nothing new is learned without.
func (p *Provider) whatPods() string { return "pods of node " + p.config.NodeName }
func (p *Provider) whatNode() string { return "node " + p.config.NodeName }

// problem shows a finding, or that there is none any more where its Text is "", and
// reports whether that is new.
func (p *Provider) problem(f outage.Finding) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, had := p.problems[f.What]
	if before.Text == f.Text {
		return false
	}
	f.Since = time.Now()
	if had {
		f.Since = before.Since // it fails of something else now
	}
	if f.Text == "" {
		delete(p.problems, f.What)
	} else {
		p.problems[f.What] = f
	}
	close(p.changed)
	p.changed = make(chan struct{})
	return true
}

// Findings lists what cannot be read, sorted.
func (p *Provider) Findings() []outage.Finding {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []outage.Finding
	for _, what := range slices.Sorted(maps.Keys(p.problems)) {
		out = append(out, p.problems[what])
	}
	return out
}

// Changed returns a channel that is closed when Findings next change. Call it
// before Findings.
func (p *Provider) Changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}
