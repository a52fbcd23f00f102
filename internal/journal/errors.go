package journal

import "errors"

// Errors of the journals, to be matched with errors.Is; see also [ErrFull] and [ErrUnknown].
var (
	// ErrLocked means that another process has the journal open.
	ErrLocked = errors.New("another daemon holds the journal")
	// ErrDamaged means that the journal's file cannot be trusted and no sound spare copy
	// was found.
	ErrDamaged = errors.New("the journal is damaged")
	// ErrUnreadable means that single values of the journal cannot be read. The rest is whole.
	ErrUnreadable = errors.New("the journal has values that cannot be read")
	// ErrFormat means that a newer version wrote the journal in a format that this
	// version cannot read.
	ErrFormat = errors.New("the journal has a newer format")
	// ErrByteOrder means that a machine of the other byte order wrote the journal. Nothing is changed.
	ErrByteOrder = errors.New("the journal is of a machine with the other byte order")
	// ErrQuarantined means that the stored record cannot be read: it may be deleted but
	// not overwritten.
	ErrQuarantined = errors.New("the record is quarantined")
	// ErrClosed means that the journal was closed.
	ErrClosed = errors.New("the journal is closed")
)
