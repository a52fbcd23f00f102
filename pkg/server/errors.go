package server

import "errors"

// What an implementation of [Objects] wraps to say which kind of failure it
// met; the API turns each into a status code, and the client back again.
var (
	// ErrNotFound: nothing of that kind and name is known (404).
	ErrNotFound = errors.New("not found")
	// ErrInvalid: the request or manifest is wrong and must change (400).
	ErrInvalid = errors.New("invalid")
	// ErrConflict: it cannot be done as things stand (409): the pod comes from
	// a file, the claim is in use.
	ErrConflict = errors.New("conflict")
	// ErrForbidden: the caller may not use the API (403).
	ErrForbidden = errors.New("forbidden")
	// ErrTooLarge: the request is over the limit (413).
	ErrTooLarge = errors.New("too large")
	// ErrBusy: too many streams are open (503).
	ErrBusy = errors.New("busy")
)

// failure is err as the API tells it.
func failure(err error) *Error {
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return &Error{Message: Message(err), Reason: k.reason}
		}
	}
	return &Error{Message: err.Error(), Reason: "internal"}
}
