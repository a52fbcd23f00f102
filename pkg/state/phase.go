package state

import (
	"fmt"
	"time"
)

// Phase is what is durably known about one fact on the host: "the volume is attached",
// "the volume is staged", "the volume is published to this pod".
//
// In flight and uncertain are the same phase because after a crash they are the same
// knowledge: a call was begun, and its effect is unknown.
type Phase uint8

const (
	// Absent means known not to exist. A fact is absent if it was never begun or if a
	// removal succeeded; no error makes it absent.
	Absent Phase = iota
	// Entering means that a call to create it was begun and is not known to have
	// succeeded.
	Entering
	// Present means that a call created it and that the kernel confirmed it.
	Present
	// Leaving means that a call to remove it was begun and is not known to have
	// succeeded.
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

// Fact is one thing that may be true on the host, and the failures of the calls that
// should change it.
type Fact struct {
	Phase Phase `json:"phase"`
	// Failed describes the failures since the last success; nil if there were none.
	Failed *Retry `json:"retry,omitempty"`
}

// Retry returns the pacing of the calls for the fact.
func (f Fact) Retry() Retry { return f.Failed.Value() }

// Retry paces the calls for one fact and keeps what people want to know about a failure.
// The zero value means that nothing failed since the last success.
type Retry struct {
	// Attempts counts failed calls since the last success or change of direction.
	Attempts int `json:"attempts,omitempty"`
	// Since is when the first of them failed.
	Since time.Time `json:"since,omitzero"`
	// NotBefore is the earliest time of the next call. It has no meaning if Final is set.
	NotBefore time.Time `json:"notBefore,omitzero"`
	// Final means that no further call is made until an event resets it (the driver came
	// back, the wish changed, the volume was staged anew).
	Final bool `json:"final,omitempty"`
	// Call is the call that failed last ("NodeStageVolume").
	Call string `json:"call,omitempty"`
	// Code is its gRPC code name ("Unavailable"), or "" if none was received.
	Code string `json:"code,omitempty"`
	// Error is its text, for people.
	Error string `json:"error,omitempty"`
	// Step is how the failed call unmounted, if it was an unmount.
	Step UnmountStep `json:"step,omitempty"`
	// Here is when this run of the daemon first saw a failure. The ladder at unmount
	// counts from it, not from Since, because the clock may jump between two runs. So it
	// is in no record.
	Here time.Time `json:"-"`
	// First is the code and text of the failure before the driver began to answer
	// Aborted. It is the cause; Aborted only says that the earlier call is still running.
	First string `json:"first,omitempty"`
	// Unanswered means that the driver did not answer; Code describes the connection's
	// failure.
	Unanswered bool `json:"unanswered,omitempty"`
	// Refused means that the request is wrong, not its timing. It is repeated rarely.
	Refused bool `json:"refused,omitempty"`
	// Reason adds what Code does not say; "" if unknown.
	Reason Reason `json:"reason,omitempty"`
	// Stray counts the files in the target that keep it from being removed
	// ([CallError.Stray]).
	Stray int `json:"stray,omitempty"`
}

// Value returns what r points to, or the zero Retry if r is nil.
func (r *Retry) Value() Retry {
	if r == nil {
		return Retry{}
	}
	return *r
}

// Kept returns r as records hold it: a copy that is replaced, never changed, or nil if
// nothing failed, as for most facts.
func (r Retry) Kept() *Retry {
	if r == (Retry{}) {
		return nil
	}
	kept := r // &r would allocate in the nil case, too
	return &kept
}
