package outage

import (
	"errors"
	"math/rand/v2"
	"time"
)

const (
	// firstPause is how long nothing is asked after a failure; it doubles up to
	// lastPause. Each pause is longer by chance, up to as long again, so that the
	// nodes of a cluster do not ask a server that comes back in one moment.
	firstPause = 250 * time.Millisecond
	lastPause  = 30 * time.Second
)

// Backoff paces attempts. The zero value is ready, and starts anew.
type Backoff struct {
	failures int
	busy     bool // the last was told to come later
}

// Next returns how long to wait after a failure. A server that says how long
// (429 and 503 with Retry-After) is not asked before.
func (b *Backoff) Next(err error) time.Duration {
	l, busy := errors.AsType[*Later](err)
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
		pause = max(pause, l.After)
	}
	return Jitter(pause, 1)
}

// Jitter returns d, longer by chance by up to share of it.
func Jitter(d time.Duration, share float64) time.Duration {
	return d + time.Duration(rand.Float64()*share*float64(d)) //nolint:gosec // no secret depends on it
}
