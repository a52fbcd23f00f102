package report

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// cutID returns the driver and the handle of a persistent volume's id.
func cutID(id state.VolumeID) (driver state.DriverName, handle string, ok bool) {
	name, handle, ok := strings.Cut(string(id), "^")
	return state.DriverName(name), handle, ok
}

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
