package outage

import (
	"slices"
	"testing"
	"time"
)

// A finding keeps the time at which it first appeared, and is new only if its text is.
func TestFindingsAreNotedOnce(t *testing.T) {
	var f Findings
	at := func(minute int) time.Time { return time.Unix(int64(60*minute), 0) }
	for minute, step := range []struct {
		what, text string
		changed    bool
	}{
		{"pods", "", false},
		{"pods", "refused", true},
		{"pods", "refused", false},
		{"claims", "away", true},
		{"pods", "away", true},
		{"claims", "", true},
		{"claims", "away", true},
	} {
		if got := f.Note(Finding{What: step.what, Text: step.text}, at(minute)); got != step.changed {
			t.Errorf("step %d: changed is %v", minute, got)
		}
	}
	want := []Finding{{What: "claims", Text: "away", Since: at(6)}, {What: "pods", Text: "away", Since: at(1)}}
	if got := f.List(); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Pauses double up to the last one, each longer by a random part; a server that names a
// pause is not asked earlier, and one that is back resets the pauses.
func TestPausesDouble(t *testing.T) {
	var b Backoff
	between := func(what string, least time.Duration, err error) {
		t.Helper()
		if got := b.Next(err); got < least || got > 2*least {
			t.Errorf("%s: %v, want %v to twice that", what, got, least)
		}
	}
	for n := range 10 {
		between("failure", min(lastPause, firstPause<<n), nil)
	}
	between("first word of a busy server", 2*time.Second, &RetryAfterError{After: 2 * time.Second})
	between("the next failure", firstPause<<1, nil)
	between("a maintenance page asks for a day", 5*time.Minute, &RetryAfterError{After: 24 * time.Hour})
	b = Backoff{}
	between("anew", firstPause, nil)
}
