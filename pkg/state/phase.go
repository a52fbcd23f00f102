package state

import (
	"fmt"
	"time"
)

// Phase is what is durably known about one fact on the host: "the volume is
// attached", "the volume is staged", "the volume is published to this pod".
//
// In flight and uncertain are the same phase, because after a crash they are
// the same knowledge: a call was begun and its effect is not known.
type Phase uint8

const (
	// Absent means known not to exist. Only a removal that succeeded, or never
	// having begun, makes a fact absent; no error does.
	Absent Phase = iota
	// Entering means a call that makes it true was begun and is not known to have succeeded.
	Entering
	// Present means a call made it true and the kernel was seen to agree.
	Present
	// Leaving means a call that removes it was begun and is not known to have succeeded.
	Leaving
)

var phaseNames = [...]string{"absent", "entering", "present", "leaving"}

func (p Phase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return fmt.Sprintf("Phase(%d)", uint8(p))
}

// MarshalText writes the lower-case word.
func (p Phase) MarshalText() ([]byte, error) {
	if int(p) >= len(phaseNames) {
		return nil, fmt.Errorf("phase %d: not one of absent, entering, present, leaving", uint8(p))
	}
	return []byte(phaseNames[p]), nil
}

// UnmarshalText reads what MarshalText wrote.
func (p *Phase) UnmarshalText(b []byte) error {
	for i, name := range phaseNames {
		if name == string(b) {
			*p = Phase(i)
			return nil
		}
	}
	return fmt.Errorf("phase %q: not one of absent, entering, present, leaving", b)
}

// Fact is one thing that is or is not so on the host, and how the calls that
// should change it are faring.
type Fact struct {
	Phase Phase `json:"phase"`
	// Failed is how the calls fare, where one has failed since the last success.
	Failed *Retry `json:"retry,omitempty"`
}

// Retry is the pacing of the calls for the fact.
func (f Fact) Retry() Retry { return f.Failed.Value() }

// Retry paces the calls for one fact and keeps what a person asks of a failure.
// The zero value means that nothing failed since the last success.
type Retry struct {
	// Attempts counts calls that failed since the last success or change of direction.
	Attempts int `json:"attempts,omitempty"`
	// Since is when the first of them failed.
	Since time.Time `json:"since,omitzero"`
	// NotBefore is when the next may be made. Meaningless where Final.
	NotBefore time.Time `json:"notBefore,omitzero"`
	// Final means no further call until an event resets it (the driver came
	// back, the wish changed, the volume was staged anew).
	Final bool `json:"final,omitempty"`
	// Call is the call that failed last ("NodeStageVolume").
	Call string `json:"call,omitempty"`
	// Code is its gRPC code name ("Unavailable"), or "" where none was received.
	Code string `json:"code,omitempty"`
	// Error is its text, for people.
	Error string `json:"error,omitempty"`
	// Step is how the unmount was made that failed last, where it is one.
	Step UnmountStep `json:"step,omitempty"`
	// Here is when the first failed that this run of the daemon has seen. The
	// ladder at unmount counts from it and not from Since, since the clock may have
	// jumped between two runs; so it is in no record.
	Here time.Time `json:"-"`
	// First is what failed before the driver began to answer Aborted, code and
	// text in one: the cause; Aborted only says that it goes on.
	First string `json:"first,omitempty"`
	// Unanswered: the driver said nothing, and Code is what the connection makes of that.
	Unanswered bool `json:"unanswered,omitempty"`
	// Refused: the request is wrong, and not the moment. It is repeated rarely.
	Refused bool `json:"refused,omitempty"`
	// Reason is why, where Code does not say it; "" for none that is known.
	Reason Reason `json:"reason,omitempty"`
	// Stray counts the files in the target that keep it from being removed
	// ([CallError.Stray]).
	Stray int `json:"stray,omitempty"`
}

// Value is what r points to, and the zero value for none.
func (r *Retry) Value() Retry {
	if r == nil {
		return Retry{}
	}
	return *r
}

// Kept is r as records have it: a copy that is never changed, only replaced, and
// nil where nothing failed, as of most facts.
func (r Retry) Kept() *Retry {
	if r == (Retry{}) {
		return nil
	}
	kept := r // not &r, which would be made on the heap for none, too
	return &kept
}
