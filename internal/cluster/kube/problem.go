package kube

import (
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/csi-volmgr/csi-volmgr/internal/host/outage"
)

// noteError reports the error of reading the object, and logs it if it is another than before; nil clears it.
func (p *Provider) noteError(what string, err error, wait time.Duration) {
	if p.note(what, err) && err != nil {
		p.logError(slog.LevelWarn, what, err, wait)
	}
}

// logError logs that an object was not read.
func (p *Provider) logError(level slog.Level, what string, err error, wait time.Duration) {
	log := p.logger.Warn
	if level == slog.LevelDebug {
		log = p.logger.Debug
	}
	log("API server not read", "object", what, "err", err, "retry", wait.Round(time.Millisecond))
}

// note stores the error of reading the object, nil for none, and reports whether it is another than before.
func (p *Provider) note(what string, err error) (changed bool) {
	if err == nil {
		return p.setFinding(outage.Finding{What: what})
	}
	f := outage.Finding{What: what, Cause: outage.CauseOf(err), Reason: outage.Explain(err)}
	f.Text = f.Reason + "; its last known state stays in use"
	f.Vital = what == p.whatPods() || what == p.whatNode()
	return p.setFinding(f)
}

// refusedPatience is how long the API server may refuse a node an object that a pod names until that is a warning. The
// node authorizer learns of pods, claims and attachments by watches of its own, and may be behind this node's.
const refusedPatience = 30 * time.Second

// refusal is what a follower knows of the server's refusals (403) of its object. The zero value means that there was
// none.
type refusal struct {
	since  time.Time
	warned bool
}

// levelOf returns the level to log an error at, and whether to log it. changed means that it is another than before.
func (r *refusal) levelOf(err error, changed bool, now time.Time) (level slog.Level, log bool) {
	switch {
	case !apierrors.IsForbidden(err):
		*r = refusal{}
		return slog.LevelWarn, changed && err != nil
	case r.since.IsZero():
		r.since = now
		return slog.LevelDebug, true
	case now.Sub(r.since) < refusedPatience:
		return slog.LevelDebug, changed
	}
	first := !r.warned
	r.warned = true
	return slog.LevelWarn, changed || first
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
