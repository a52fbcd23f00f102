package state

import "errors"

// Errors of the journals, to be matched with errors.Is.
var (
	// ErrLocked: another process has the journal open.
	ErrLocked = errors.New("another daemon holds the journal")
	// ErrDamaged: the journal's file cannot be trusted, and no sound spare copy was found.
	ErrDamaged = errors.New("the journal is damaged")
	// ErrFormat: the journal was written by a newer version than this one can read.
	ErrFormat = errors.New("the journal has a newer format")
	// errNewer: a record that only a newer version can read.
	errNewer = errors.New("written by a newer csi-volmgr")
	// ErrQuarantined: a record that could not be read is never overwritten; it can only be deleted.
	ErrQuarantined = errors.New("the record is quarantined")
	// ErrUnknown: the wait for a write was given up while it was under way; it may have become durable or not.
	ErrUnknown = errors.New("it is not known whether the write became durable")
	// ErrFull: the disk has no room for what begins something. What ends something,
	// or goes on with it, is still written, to room that was set aside.
	ErrFull = errors.New("the disk of the journal is full")
	// ErrClosed: the journal was closed.
	ErrClosed = errors.New("the journal is closed")
)
