package isolate

import (
	"errors"
	"syscall"
)

// failure is a handler's error as sent between processes: its text, and the errors that
// errors.Is must find in it.
type failure struct {
	Text   string          `json:"text"`
	Errnos []syscall.Errno `json:"errnos,omitempty"`
	Known  []int           `json:"known,omitempty"` // indexes of Service.Errors
}

func newFailure(err error, known []error) *failure {
	f := &failure{Text: err.Error(), Errnos: errnos(err)}
	for i, k := range known {
		if errors.Is(err, k) {
			f.Known = append(f.Known, i)
		}
	}
	return f
}

// errnos returns the system call error numbers that err wraps.
func errnos(err error) []syscall.Errno {
	switch e := err.(type) {
	case syscall.Errno:
		return []syscall.Errno{e}
	case interface{ Unwrap() error }:
		return errnos(e.Unwrap())
	case interface{ Unwrap() []error }:
		var all []syscall.Errno
		for _, one := range e.Unwrap() {
			all = append(all, errnos(one)...)
		}
		return all
	}
	return nil
}

// error returns f as an error for the caller of Do.
func (f *failure) error(known []error) error {
	e := &remoteError{text: f.Text}
	for _, n := range f.Errnos {
		e.causes = append(e.causes, n)
	}
	for _, i := range f.Known {
		if i < len(known) {
			e.causes = append(e.causes, known[i])
		}
	}
	return e
}

// remoteError is a handler's error in the caller's process.
type remoteError struct {
	text   string
	causes []error
}

func (e *remoteError) Error() string   { return e.text }
func (e *remoteError) Unwrap() []error { return e.causes }
