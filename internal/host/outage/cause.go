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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Cause is why a request to the API server failed, if the cause is not the requested
// object; "" stands for every other reason.
type Cause string

// The causes.
const (
	// Unreachable means that there is no connection.
	Unreachable Cause = "Unreachable"
	// Silent means that no answer came in time.
	Silent Cause = "Silent"
	// BadCertificate means that one side does not accept the other's certificate.
	BadCertificate Cause = "BadCertificate"
	// Unauthorized means that the server does not accept the daemon's credentials (401).
	Unauthorized Cause = "Unauthorized"
	// Busy means that the server asks for a pause (429, or any answer with Retry-After), or
	// that it or a server behind it has no capacity (502, 503, 504).
	Busy Cause = "Busy"
	// Refused means that the identity lacks a permission (403), perhaps only for one kind.
	Refused Cause = "Refused"
	// Failing means an internal error of the server (500), perhaps only for one object.
	Failing Cause = "Failing"
	// Behind means that the server answers with an older state than before, perhaps only
	// for one object.
	Behind Cause = "Behind"
)

// whole reports whether the cause affects all requests.
func (c Cause) whole() bool { return c != "" && c != Refused && c != Failing && c != Behind }

// ErrAway means that a request failed because the API server is unavailable.
var ErrAway = errors.New("the API server is away")

// RetryAfterError is the error of a request that an overloaded server answered with Retry-After.
type RetryAfterError struct {
	Code  int
	After time.Duration
}

// Error implements error.
func (e *RetryAfterError) Error() string {
	return fmt.Sprintf("the API server is overloaded (%d) and asks for a pause of %s", e.Code, e.After)
}

// BehindError means that an answer has an older state than an earlier one. The answer is
// discarded, because objects created since then would look deleted.
type BehindError struct{ Has, Seen string }

// Error implements error.
func (e *BehindError) Error() string {
	return fmt.Sprintf("the API server answers with an older state (resourceVersion %s) than before (%s): one of its "+
		"instances lags behind, or its data was restored from a backup, which is followed once it has gone on for "+
		"five minutes", e.Has, e.Seen)
}

// CauseOf returns the cause of a failed request. err must not be nil.
func CauseOf(err error) Cause {
	var status apierrors.APIStatus // not an error itself
	var later *RetryAfterError
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
		return "" // for example an answer that cannot be decoded
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

// isCertificate reports whether a TLS connection failed because of a certificate.
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

// Wrap wraps err in ErrAway if its cause affects all requests.
func Wrap(err error) error {
	if err == nil || !CauseOf(err).whole() {
		return err
	}
	return fmt.Errorf("%w: %w", ErrAway, err)
}

// Missing reports whether the server says that the requested object does not exist. A proxy without
// a route to the server says 404 too, but not with a Status of the API.
func Missing(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// Explain says in a sentence why a request failed, without naming the object.
func Explain(err error) string {
	var status apierrors.APIStatus
	var later *RetryAfterError
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
			return "the API server does not serve this kind of object: " + s.Message
		}
		if !Missing(err) {
			return "another server answers in the API server's place (404): look for a proxy without a route to it"
		}
		return "not found"
	case http.StatusForbidden:
		return "the API server refuses (403): " + s.Message
	case http.StatusUnauthorized:
		return "the API server does not accept the daemon's credentials (401): " + s.Message
	}
	return fmt.Sprintf("the API server failed (%d %s): %s", s.Code, s.Reason, s.Message)
}

// plain returns the text of err without the URL, which differs between requests.
func plain(err error) string {
	if sent, ok := errors.AsType[*url.Error](err); ok {
		return sent.Err.Error()
	}
	return err.Error()
}
