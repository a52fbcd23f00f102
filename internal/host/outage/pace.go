package outage

import (
	"errors"
	"math/rand/v2"
	"time"
)

const (
	// firstPause is the pause after the first failure; it doubles up to lastPause. Each
	// pause is lengthened at random to up to twice as long, so that the nodes of a cluster
	// do not all ask a returning server at the same moment.
	firstPause = 250 * time.Millisecond
	lastPause  = 30 * time.Second
	// maxAsked bounds the pause that a server asks for: a maintenance page of a proxy may ask
	// for hours, and the API server may be back sooner.
	maxAsked = 5 * time.Minute
)

// Backoff computes the pauses between attempts. The zero value is ready to use; assigning
// it resets a Backoff.
type Backoff struct {
	failures int
	busy     bool // the last failure was a RetryAfterError
}

// Next returns how long to wait after a failure: at least as long as the server asks for
// (429 and 503 with Retry-After), up to maxAsked.
func (b *Backoff) Next(err error) time.Duration {
	l, busy := errors.AsType[*RetryAfterError](err)
	if busy && !b.busy {
		b.failures = 0 // the server is back and asks for a pause; the outage's long pause is over
	}
	b.busy = busy
	pause := lastPause
	if b.failures < 7 {
		pause = min(lastPause, firstPause<<b.failures)
	}
	b.failures++
	if busy {
		pause = max(pause, min(l.After, maxAsked))
	}
	return Jitter(pause, 1)
}

// Jitter returns d plus a random part of d, at most share of it.
func Jitter(d time.Duration, share float64) time.Duration {
	return d + time.Duration(rand.Float64()*share*float64(d)) //nolint:gosec // not used for secrets
}
