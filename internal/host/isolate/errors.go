package isolate

import (
	"errors"
	"fmt"
	"time"
)

// ErrHangs is wrapped by the error of a call that was not started because an earlier
// one for the same key was left behind and has not returned.
var ErrHangs = errors.New("an earlier call hangs")

// ErrLimit is wrapped by the error of a call that was not started because the allowed
// number of calls hang already, in all or of one of its shares ([WithShares]).
var ErrLimit = errors.New("too many calls hang")

// ErrLost is wrapped by the error of a call whose helper ended before the call did.
var ErrLost = errors.New("the helper ended during the call")

// ErrClosed is wrapped by the error of a call made after Close.
var ErrClosed = errors.New("the pool of helpers is closed")

// HangError reports the call that blocks a key, and since when.
type HangError struct {
	Key, Call string
	Since     time.Time
	now       time.Time
}

// NewHangError returns the error for a call that is refused now.
func NewHangError(key, call string, since time.Time) *HangError {
	return &HangError{Key: key, Call: call, Since: since, now: time.Now()}
}

func (e *HangError) Error() string {
	return fmt.Sprintf("%v: %s of %s has not returned since %s (%v)",
		ErrHangs, e.Call, e.Key, e.Since.UTC().Format(time.RFC3339), e.now.Sub(e.Since).Round(time.Second))
}

// Is reports whether target is ErrHangs.
func (e *HangError) Is(target error) bool { return target == ErrHangs }
