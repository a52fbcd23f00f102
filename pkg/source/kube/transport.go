package kube

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/csi-volmgr/csi-volmgr/pkg/outage"
)

// Transport is to be between the clients of a Provider and the network. It makes an
// error of what client-go would deal with by itself, unknown to the caller and beyond
// what its context says of a single answer: an answer that says "later", and a
// connection that ends, are repeated ten times. Of a watch whose connection ends or
// times out client-go makes one without events, and no error.
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
	after := resp.Header.Get("Retry-After")
	if after == "" && resp.StatusCode != http.StatusTooManyRequests {
		return resp, nil
	}
	seconds, err := strconv.Atoi(after)
	if err != nil {
		seconds = 1 // RFC 9110 allows a date, which no API server sends
	}
	return nil, errors.Join(&outage.Later{Code: resp.StatusCode, After: time.Duration(seconds) * time.Second},
		resp.Body.Close())
}

// errEnded stands for errors that client-go knows by their values or their texts.
var errEnded = errors.New("the connection ended before the answer")
