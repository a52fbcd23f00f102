package report

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	firstPause = 250 * time.Millisecond
	lastPause  = 30 * time.Second
)

// backoff paces attempts: each pause is twice the one before, and longer by
// chance, so that the nodes of a cluster do not write in one moment.
type backoff struct{ failures int }

func (b *backoff) next() time.Duration {
	pause := lastPause
	if b.failures < 7 {
		pause = min(lastPause, firstPause<<b.failures)
	}
	b.failures++
	return pause + time.Duration(rand.Int64N(int64(pause))) //nolint:gosec // no secret depends on it
}

// problem shows why something is not written, nil where it is.
func (r *Reporter) problem(what string, err error, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := ""
	if err != nil {
		text = err.Error()
	}
	if r.problems[what] == text {
		return
	}
	if text == "" {
		delete(r.problems, what)
		r.logger.Info("written to the API server again", "what", what)
		return
	}
	r.problems[what] = text
	r.logger.Warn("not written to the API server", "what", what, "err", err, "retry", wait.Round(time.Millisecond))
}

// show shows a problem that is no failure of a request, "" for none.
func (r *Reporter) show(what, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if text == "" {
		delete(r.problems, what)
		return
	}
	r.problems[what] = text
}

// Problem is something that could not be written, for people.
type Problem struct{ What, Text string }

// Problems lists what could not be written, sorted.
func (r *Reporter) Problems() []Problem {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Problem
	for _, what := range slices.Sorted(maps.Keys(r.problems)) {
		out = append(out, Problem{what, r.problems[what]})
	}
	return out
}
