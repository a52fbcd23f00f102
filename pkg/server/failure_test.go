package server

import "testing"

// Faults: A167.
func TestWhatWasNotAnsweredIsNotSaidToBeAnswered(t *testing.T) {
	r := failed("NodeStageVolume", "DeadlineExceeded", "no answer within 2m0s", 3)
	r.Unanswered = true
	if got, want := Failure(r), "NodeStageVolume got no answer (DeadlineExceeded): no answer within 2m0s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	r.Unanswered = false
	if got, want := Failure(r), "NodeStageVolume answered DeadlineExceeded: no answer within 2m0s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
