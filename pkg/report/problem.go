package report

import (
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/outage"
)

// problem shows why something is not written, nil where it is.
func (r *Reporter) problem(what string, err error, wait time.Duration) {
	f := outage.Finding{What: what}
	if err != nil {
		f.Cause, f.Reason = outage.CauseOf(err), outage.Explain(err)
	}
	r.noteFinding(f, err, wait)
}

// noteFinding shows what f is about and why it failed; a nil error ends it.
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

// show shows a problem that is no failure of a request, "" for none.
func (r *Reporter) show(what, text string) { r.note(outage.Finding{What: what, Text: text}) }

// note takes in a finding, or that there is none any more where its Text is "", and
// reports whether that is new.
func (r *Reporter) note(f outage.Finding) (changed bool) { return r.problems.Note(f, time.Now()) }

// Findings lists what could not be written, sorted.
func (r *Reporter) Findings() []outage.Finding { return r.problems.List() }
