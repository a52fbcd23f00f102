package state

import "errors"

// Errors of a journal, to be matched with errors.Is.
var (
	// ErrUnknown means that the caller stopped waiting while the write was under way, so
	// the write may or may not be durable.
	ErrUnknown = errors.New("it is not known whether the write became durable")
	// ErrFull means that the disk has no room for a change that begins something. Changes
	// that continue or end something are still written, to room that was set aside.
	ErrFull = errors.New("the disk of the journal is full")
)
