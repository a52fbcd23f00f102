package state

import "errors"

// Errors of the journals, to be matched with errors.Is.
var (
	// ErrLocked means that another process has the journal open.
	ErrLocked = errors.New("another daemon holds the journal")
	// ErrDamaged means that the journal's file cannot be trusted and no sound spare copy
	// was found.
	ErrDamaged = errors.New("the journal is damaged")
	// ErrFormat means that a newer version wrote the journal in a format that this
	// version cannot read.
	ErrFormat = errors.New("the journal has a newer format")
	// errNewer means that only a newer version can read the record.
	errNewer = errors.New("written by a newer csi-volmgr")
	// ErrQuarantined means that the stored record cannot be read: it may be deleted but
	// not overwritten.
	ErrQuarantined = errors.New("the record is quarantined")
	// ErrUnknown means that the caller stopped waiting while the write was under way, so
	// the write may or may not be durable.
	ErrUnknown = errors.New("it is not known whether the write became durable")
	// ErrFull means that the disk has no room for a change that begins something. Changes
	// that continue or end something are still written, to room that was set aside.
	ErrFull = errors.New("the disk of the journal is full")
	// ErrClosed means that the journal was closed.
	ErrClosed = errors.New("the journal is closed")
)
