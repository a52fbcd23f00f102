package manifest

import (
	"fmt"
	"strings"
)

// maxErrors is how many errors of one input are reported.
const maxErrors = 20

// Error is one thing that is wrong in a file.
type Error struct {
	File string
	// Line is 1 for the file's first line, 0 where it is not known.
	Line int
	// Document counts the documents of the file from 1; 0 where it is not known.
	Document int
	// Object is the object for people ("pod default/web"); "" where it is not known.
	Object string
	// Field is the path of the field ("spec.volumes[0].name"); "" for the object itself.
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

// Errors is all that is wrong in a file, in its order, at least one.
type Errors []*Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.AsType find each.
func (e Errors) Unwrap() []error {
	errs := make([]error, len(e))
	for i, one := range e {
		errs[i] = one
	}
	return errs
}
