package client

import (
	"errors"

	api "github.com/csi-volmgr/csi-volmgr/internal/serve/client"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// errors.Is matches an *[Error] with the one of these that its Reason names.
var (
	// ErrNotFound means that no object of that kind and name is known (404).
	ErrNotFound = server.ErrNotFound
	// ErrInvalid means that the request or manifest is wrong and must change (400).
	ErrInvalid = server.ErrInvalid
	// ErrConflict means that the current state does not allow the request (409): the pod
	// comes from a file, the claim is in use.
	ErrConflict = server.ErrConflict
	// ErrForbidden means that the caller may not make the request (403).
	ErrForbidden = server.ErrForbidden
	// ErrTooLarge means that the request exceeds the size limit (413).
	ErrTooLarge = server.ErrTooLarge
	// ErrBusy means that too many watches and waits are open (503).
	ErrBusy = server.ErrBusy
)

// The daemon did not answer, or not to the end.
var (
	// ErrNoDaemon means that no daemon answers at the socket.
	ErrNoDaemon = api.ErrNoDaemon
	// ErrCut means that a watch or a wait ended before its last line, as it does when the
	// daemon stops.
	ErrCut = api.ErrCut
)

// Error is a refusal: an answer of the API whose status code is not 2xx.
type Error struct {
	// Status is the HTTP status code of the answer.
	Status int `json:"-"`
	// Reason is one word for programs: notFound, invalid, conflict, forbidden, tooLarge,
	// busy or internal.
	Reason string `json:"reason"`
	// Message is for people and names the object and the field.
	Message string `json:"error"`
}

// Error returns the message for people.
func (e *Error) Error() string { return e.Message }

// Is reports whether target is this package's error for e.Reason.
func (e *Error) Is(target error) bool { return (&server.Error{Reason: e.Reason}).Is(target) }

// refusal returns a refusal as an *Error, and any other error as it is.
func refusal(err error) error {
	if e, ok := errors.AsType[*server.Error](err); ok {
		return &Error{Status: e.Status, Reason: e.Reason, Message: e.Message}
	}
	return err
}
