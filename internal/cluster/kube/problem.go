package kube

import (
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/host/outage"
)

// noteError reports the error of reading the object; nil clears it.
func (p *Provider) noteError(what string, err error, wait time.Duration) {
	if err == nil {
		p.setFinding(outage.Finding{What: what})
		return
	}
	f := outage.Finding{What: what, Cause: outage.CauseOf(err), Reason: outage.Explain(err)}
	f.Text = f.Reason + "; its last known state stays in use"
	f.Vital = what == p.whatPods() || what == p.whatNode()
	if p.setFinding(f) {
		p.logger.Warn("API server not read", "object", what, "err", err, "retry", wait.Round(time.Millisecond))
	}
}

// whatPods and whatNode name the reads without which nothing new is learned.
func (p *Provider) whatPods() string { return "pods of node " + p.config.NodeName }
func (p *Provider) whatNode() string { return "node " + p.config.NodeName }

// setFinding stores a finding, or removes it if its Text is "", and reports whether that changed
// anything.
func (p *Provider) setFinding(f outage.Finding) (changed bool) {
	if !p.problems.Note(f, time.Now()) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.changed)
	p.changed = make(chan struct{})
	return true
}

// Findings lists what cannot be read, sorted.
func (p *Provider) Findings() []outage.Finding { return p.problems.List() }

// Changed returns a channel that is closed when Findings next changes. Call it before Findings.
func (p *Provider) Changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}
