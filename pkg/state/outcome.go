package state

import (
	"errors"
	"fmt"
)

// Outcome is what a call's answer implies for pacing and reporting. It never makes a fact
// absent: only success does.
type Outcome uint8

const (
	// Done means that the call succeeded.
	Done Outcome = iota
	// Failed means a definite failure; the same call may be made again.
	Failed
	// Uncertain means that the answer was lost or the work may go on; the same call must
	// be made again.
	Uncertain
	// Refused means that the request itself must change. It is still repeated, rarely,
	// because its environment may change.
	Refused
	// Final means that the call is not repeated until an event resets it (UNIMPLEMENTED,
	// or NodeExpandVolume's FAILED_PRECONDITION).
	Final
	// Partly means that the call succeeded but for a part, which is not repeated: a pod's
	// fsGroup that some files cannot be given to.
	Partly
)

var outcomeNames = [...]string{"done", "failed", "uncertain", "refused", "final", "partly"}

func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// FilesystemMismatch is the code with which a built-in kind refuses to mount a disk that
// has another file system than its PersistentVolume says.
const FilesystemMismatch = "FilesystemMismatch"

// CallError is a call that did not succeed.
type CallError struct {
	Outcome Outcome
	Call    string // "NodeStageVolume"
	Code    string // gRPC code name, or [FilesystemMismatch]; "" if none was received
	Err     error
	// Unanswered means that the driver did not answer; Code was set on this side.
	Unanswered bool
	// Reason adds what Code does not say; "" if unknown.
	Reason Reason
	// Stray counts the files found in a target on which nothing is mounted: they are on
	// the node's own disk, and keep the target from being removed.
	Stray int
}

func (e *CallError) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("%s: %v", e.Call, e.Err)
	}
	return fmt.Sprintf("%s: %s: %v", e.Call, e.Code, e.Err)
}

func (e *CallError) Unwrap() error { return e.Err }

// AsCallError returns err as a CallError. An error of another type becomes a Failed
// outcome of the given call.
func AsCallError(call string, err error) *CallError {
	if e, ok := errors.AsType[*CallError](err); ok {
		return e
	}
	return &CallError{Outcome: Failed, Call: call, Err: err}
}
