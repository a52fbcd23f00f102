package kube

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/csi-volmgr/csi-volmgr/internal/host/outage"
)

// Transport wraps the transport of a Provider's clients. It returns as errors what client-go would
// otherwise handle by itself, unnoticed by the caller and for longer than the context allows for
// one answer: client-go repeats a request ten times if the answer says "later" or the connection
// ends. If a watch's connection ends or times out, client-go returns a watch without events and no
// error. It follows redirects with its token, and reads answers without a limit.
func Transport(next http.RoundTripper) http.RoundTripper { return transport{next} }

type transport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	switch {
	case err == nil:
	case r.Context().Err() != nil:
		return nil, err // the caller's own deadline
	case utilnet.IsProbableEOF(err), utilnet.IsConnectionReset(err), utilnet.IsHTTP2ConnectionLost(err):
		return nil, errEnded
	case utilnet.IsTimeout(err):
		return nil, errors.New(err.Error())
	default:
		return nil, err
	}
	if err := elsewhere(r, resp); err != nil {
		return nil, errors.Join(err, resp.Body.Close())
	}
	bounded(r, resp)
	after := resp.Header.Get("Retry-After")
	if after == "" && resp.StatusCode != http.StatusTooManyRequests {
		return resp, nil
	}
	seconds, err := strconv.Atoi(after)
	if err != nil {
		seconds = 1 // RFC 9110 allows a date, which no API server sends
	}
	return nil, errors.Join(&outage.RetryAfterError{Code: resp.StatusCode, After: time.Duration(seconds) * time.Second},
		resp.Body.Close())
}

// errEnded replaces errors that client-go recognizes by their values or texts.
var errEnded = errors.New("the connection ended before the answer")
