package report

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/outage"
)

const (
	firstPause = 250 * time.Millisecond
	lastPause  = 30 * time.Second
)

// backoff paces attempts: each pause is twice the one before, and longer by
// chance, so that the nodes of a cluster do not write in one moment.
type backoff struct {
	failures int
	busy     bool // the last was told to come later
}

// next returns how long to wait after a failure. A server that says how long (429 and
// 503 with Retry-After) is not asked before.
func (b *backoff) next(err error) time.Duration {
	later, busy := errors.AsType[*outage.Later](err)
	if busy && !b.busy {
		b.failures = 0 // it is back: what it asks for is this pause, not that of an outage
	}
	b.busy = busy
	pause := lastPause
	if b.failures < 7 {
		pause = min(lastPause, firstPause<<b.failures)
	}
	b.failures++
	if busy {
		pause = max(pause, later.After)
	}
	return pause + time.Duration(rand.Int64N(int64(pause))) //nolint:gosec // no secret depends on it
}

// problem shows why something is not written, nil where it is.
func (r *Reporter) problem(what string, err error, wait time.Duration) {
	f := outage.Finding{What: what}
	if err != nil {
		f.Cause, f.Reason = outage.CauseOf(err), outage.Explain(err)
	}
	r.tell(f, err, wait)
}

// tell shows what f is about and why, nil where it is well.
func (r *Reporter) tell(f outage.Finding, err error, wait time.Duration) {
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
func (r *Reporter) note(f outage.Finding) (changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, had := r.problems[f.What]
	if before.Text == f.Text {
		return false
	}
	if f.Text == "" {
		delete(r.problems, f.What)
		return true
	}
	f.Since = time.Now()
	if had {
		f.Since = before.Since
	}
	r.problems[f.What] = f
	return true
}

// Findings lists what could not be written, sorted.
func (r *Reporter) Findings() []outage.Finding {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []outage.Finding
	for _, what := range slices.Sorted(maps.Keys(r.problems)) {
		out = append(out, r.problems[what])
	}
	return out
}
