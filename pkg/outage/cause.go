package outage

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Cause is why a request to the API server failed, where that is no matter of the
// object that was asked for; "" is every other reason.
type Cause string

// The causes.
const (
	// Unreachable: there is no connection.
	Unreachable Cause = "Unreachable"
	// Silent: no answer came in time.
	Silent Cause = "Silent"
	// BadCertificate: one of the two sides does not accept the other's certificate.
	BadCertificate Cause = "BadCertificate"
	// Unauthorized: the server does not know who asks (401).
	Unauthorized Cause = "Unauthorized"
	// Busy: the server asks for a pause (429, or any answer with Retry-After), or it
	// or what it depends on has no capacity (502, 503, 504).
	Busy Cause = "Busy"
	// Refused: the identity may not do it (403). It may be so for one kind of objects.
	Refused Cause = "Refused"
	// Failing: the server failed by itself (500). It may be so for one object.
	Failing Cause = "Failing"
	// Behind: the server answers with what it had before what it told already. It may
	// be so for one object.
	Behind Cause = "Behind"
)

// whole reports whether the cause concerns all requests, whatever they ask for.
func (c Cause) whole() bool { return c != "" && c != Refused && c != Failing && c != Behind }

// ErrAway is the error of a request that failed since the API server is away.
var ErrAway = errors.New("the API server is away")

// Later is the answer of a server that has too much to do.
type Later struct {
	Code  int
	After time.Duration
}

// Error says it for people.
func (e *Later) Error() string {
	return fmt.Sprintf("the API server has too much to do (%d) and asks to be left alone for %s", e.Code, e.After)
}

// BehindError is an answer that is older than one that the server gave before. Nothing
// is concluded from it: what is new by then would be taken for gone.
type BehindError struct{ Has, Seen string }

// Error says it for people.
func (e *BehindError) Error() string {
	return fmt.Sprintf("the API server answers with an older state (resourceVersion %s) than it told before (%s): one "+
		"of its instances "+
		"lags behind, or its data was restored from a backup; after that restart csi-volmgr", e.Has, e.Seen)
}

// CauseOf returns why a request failed; err is not nil.
func CauseOf(err error) Cause {
	var status apierrors.APIStatus // not an error itself
	var later *Later
	var behind *BehindError
	switch {
	case errors.As(err, &later):
		return Busy
	case errors.As(err, &behind):
		return Behind
	case isCertificate(err):
		return BadCertificate
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Silent
	case !errors.As(err, &status):
		if isNetwork(err) {
			return Unreachable
		}
		return "" // such as an answer that cannot be read
	}
	switch status.Status().Code {
	case http.StatusUnauthorized:
		return Unauthorized
	case http.StatusForbidden:
		return Refused
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return Busy
	case http.StatusInternalServerError:
		return Failing
	}
	return ""
}

// isNetwork reports whether the request was not sent, or its answer was cut off.
func isNetwork(err error) bool {
	var network net.Error
	_, sent := errors.AsType[*url.Error](err)
	return sent || errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// isCertificate reports whether a TLS connection was not made for want of trust.
func isCertificate(err error) bool {
	var alert tls.AlertError
	var verification *tls.CertificateVerificationError
	var invalid x509.CertificateInvalidError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	return errors.As(err, &alert) || errors.As(err, &verification) || errors.As(err, &invalid) ||
		errors.As(err, &authority) ||
		errors.As(err, &host)
}

// Wrap marks err with ErrAway where the server is away as a whole.
func Wrap(err error) error {
	if err == nil || !CauseOf(err).whole() {
		return err
	}
	return fmt.Errorf("%w: %w", ErrAway, err)
}

// Explain says for people what a request failed of.
func Explain(err error) string {
	var status apierrors.APIStatus
	var later *Later
	var behind *BehindError
	switch cause := CauseOf(err); {
	case errors.As(err, &later):
		return later.Error()
	case errors.As(err, &behind):
		return behind.Error()
	case cause == Silent:
		return "the API server did not answer in time"
	case cause == BadCertificate:
		return "no TLS connection to the API server: " + plain(err)
	case !errors.As(err, &status):
		return "the API server cannot be reached: " + plain(err)
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

// plain is the text of err without the request's address, which differs with each request.
func plain(err error) string {
	if sent, ok := errors.AsType[*url.Error](err); ok {
		return sent.Err.Error()
	}
	return err.Error()
}
