package report

import (
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/host/outage"
)

// problem records that writing what failed with err, or that it works again if err is nil.
func (r *Reporter) problem(what string, err error, wait time.Duration) {
	f := outage.Finding{What: what}
	if err != nil {
		f.Cause, f.Reason = outage.CauseOf(err), outage.Explain(err)
	}
	r.noteFinding(f, err, wait)
}

// noteFinding records and logs finding f with err as its text. A nil err ends the finding.
func (r *Reporter) noteFinding(f outage.Finding, err error, wait time.Duration) {
	what := f.What
	if err != nil {
		f.Text = err.Error()
	}
	if !r.note(f) {
		return
	}
	if err == nil {
		r.logger.Info("written to the API server again", "what", what)
		return
	}
	r.logger.Warn("not written to the API server", "what", what, "err", err, "retry", wait.Round(time.Millisecond))
}

// show records a problem that is not a failed request; an empty text ends it.
func (r *Reporter) show(what, text string) { r.note(outage.Finding{What: what, Text: text}) }

// note records a finding, or ends it if its Text is "", and reports whether that is a change.
func (r *Reporter) note(f outage.Finding) (changed bool) { return r.problems.Note(f, time.Now()) }

// Findings lists the current problems, sorted.
func (r *Reporter) Findings() []outage.Finding { return r.problems.List() }
