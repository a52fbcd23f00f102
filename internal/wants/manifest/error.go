package manifest

import (
	"fmt"
	"strings"
)

// maxErrors limits the reported errors of one input.
const maxErrors = 20

// Error is one error in a file.
type Error struct {
	File string
	// Line counts from 1; 0 means unknown.
	Line int
	// Document counts the file's documents from 1; 0 means unknown.
	Document int
	// Object names the object for people ("pod default/web"); "" means unknown.
	Object string
	// Field is the path of the field ("spec.volumes[0].name"); "" means the object itself.
	Field   string
	Problem string
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	if e.Document > 0 {
		fmt.Fprintf(&b, ": document %d", e.Document)
	}
	for _, part := range []string{e.Object, e.Field, e.Problem} {
		if part != "" {
			b.WriteString(": " + part)
		}
	}
	return b.String()
}

// Errors lists the errors in a file in order; it has at least one.
type Errors []*Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.AsType find each error.
func (e Errors) Unwrap() []error {
	errs := make([]error, len(e))
	for i, one := range e {
		errs[i] = one
	}
	return errs
}
