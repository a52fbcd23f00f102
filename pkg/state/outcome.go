package state

import (
	"errors"
	"fmt"
)

// Outcome says what a call's answer lets one conclude about pacing and what to
// report. It never decides whether a fact is absent: only success does.
type Outcome uint8

const (
	// Done: the call succeeded.
	Done Outcome = iota
	// Failed: a definite failure; the same call may be made again.
	Failed
	// Uncertain: the answer was lost or the work may go on; the same call must be made again.
	Uncertain
	// Refused: the request itself has to change; repeated rarely, since the world may change.
	Refused
	// Final: not to be repeated until an event resets it (UNIMPLEMENTED, or
	// NodeExpandVolume's FAILED_PRECONDITION).
	Final
)

var outcomeNames = [...]string{"done", "failed", "uncertain", "refused", "final"}

func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// FilesystemMismatch is the code of a built-in kind's refusal to mount a disk
// that has another file system than its PersistentVolume says.
const FilesystemMismatch = "FilesystemMismatch"

// CallError is a call that did not succeed.
type CallError struct {
	Outcome Outcome
	Call    string // "NodeStageVolume"
	Code    string // gRPC code name, or [FilesystemMismatch]; "" where none was received
	Err     error
	// Unanswered: Code was made up on this side; the driver said nothing.
	Unanswered bool
	// Reason is what Code does not say; "" for none that is known.
	Reason Reason
	// Stray counts the files that were found in a target on which nothing is mounted:
	// they are the node's own, and keep the target from being removed.
	Stray int
}

func (e *CallError) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("%s: %v", e.Call, e.Err)
	}
	return fmt.Sprintf("%s: %s: %v", e.Call, e.Code, e.Err)
}

func (e *CallError) Unwrap() error { return e.Err }

// AsCallError returns err as a CallError; an error of another type becomes a
// Failed one of the given call.
func AsCallError(call string, err error) *CallError {
	if e, ok := errors.AsType[*CallError](err); ok {
		return e
	}
	return &CallError{Outcome: Failed, Call: call, Err: err}
}
