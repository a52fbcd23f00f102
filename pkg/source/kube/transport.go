package kube

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/outage"
)

// Transport is to be between the clients of a Provider and the network: it makes
// an error of an answer that says "later", which client-go would repeat by itself,
// ten times and beyond what the caller's context says of a single answer.
func Transport(next http.RoundTripper) http.RoundTripper { return transport{next} }

type transport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err != nil {
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
	return nil, errors.Join(&outage.Later{Code: resp.StatusCode, After: time.Duration(seconds) * time.Second}, resp.Body.Close())
}
