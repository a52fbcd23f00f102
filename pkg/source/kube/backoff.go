package kube

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// firstPause is how long nothing is asked after a failure; it doubles up to
	// lastPause. Each pause is longer by chance, up to as long again, so that the
	// nodes of a cluster do not ask a server that comes back in one moment.
	firstPause = 250 * time.Millisecond
	lastPause  = 30 * time.Second
	// answerTime is how long one answer may take; watches are no answers.
	answerTime = 30 * time.Second
)

// backoff paces attempts. The zero value is ready.
type backoff struct{ failures int }

// next returns how long to wait after a failure. A server that says how long
// (429 and 503 with Retry-After) is not asked before.
func (b *backoff) next(err error) time.Duration {
	pause := lastPause
	if b.failures < 7 {
		pause = min(lastPause, firstPause<<b.failures)
	}
	b.failures++
	var l *laterError
	if errors.As(err, &l) {
		pause = max(pause, l.after)
	}
	return jittered(pause, 1)
}

func (b *backoff) reset() { b.failures = 0 }

// jittered returns d, longer by up to share of it.
func jittered(d time.Duration, share float64) time.Duration {
	return d + time.Duration(rand.Float64()*share*float64(d)) //nolint:gosec // no secret depends on it
}

// explain says for people what an attempt failed of.
func explain(err error) string {
	var status apierrors.APIStatus
	var later *laterError
	switch {
	case errors.As(err, &later):
		return later.Error()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return "the API server did not answer in time"
	case !errors.As(err, &status):
		return "the API server cannot be reached: " + err.Error()
	}
	s := status.Status()
	switch s.Code {
	case http.StatusNotFound:
		if s.Details == nil || s.Details.Name == "" {
			return "the API server does not have this kind of objects: " + s.Message
		}
		return "not found"
	case http.StatusForbidden:
		return "the API server refuses (403): " + s.Message
	case http.StatusUnauthorized:
		return "the API server does not know who asks (401): " + s.Message
	}
	return fmt.Sprintf("the API server failed (%d %s): %s", s.Code, s.Reason, s.Message)
}
