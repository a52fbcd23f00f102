package server

import (
	"errors"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Implementations of [Objects] wrap these errors to say which kind of failure occurred.
// The server turns each into a status code, and the client turns the code into the
// error.
var (
	// ErrNotFound means that no object of that kind and name is known (404).
	ErrNotFound = errors.New("not found")
	// ErrInvalid means that the request or manifest is wrong and must change (400).
	ErrInvalid = errors.New("invalid")
	// ErrConflict means that the current state does not allow the request (409): the
	// pod comes from a file, the claim is in use.
	ErrConflict = errors.New("conflict")
	// ErrForbidden means that the caller may not use the API (403).
	ErrForbidden = errors.New("forbidden")
	// ErrTooLarge means that the request exceeds the size limit (413).
	ErrTooLarge = errors.New("too large")
	// ErrBusy means that too many streams are open (503).
	ErrBusy = errors.New("busy")
)

// failure returns err in the API's form.
func failure(err error) *Error {
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return &Error{Message: Message(err), Reason: k.reason}
		}
	}
	return &Error{Message: err.Error() + diskAdvice(err), Reason: "internal"}
}

// diskAdvice names the command that shows the disk of a file that could not be written; "" for other errors.
func diskAdvice(err error) string {
	file, ok := errors.AsType[*fs.PathError](err)
	switch {
	case !ok || !filepath.IsAbs(file.Path):
		return ""
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return "; make room, and look with: df -h " + filepath.Dir(file.Path)
	case errors.Is(err, unix.EROFS):
		return "; make it writable, and look with: findmnt -T " + filepath.Dir(file.Path)
	}
	return ""
}
