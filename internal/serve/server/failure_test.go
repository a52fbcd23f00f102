package server

import (
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

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

// The advice depends on the reason of a failure, not on words of its text.
func TestAdviceGoesByTheReason(t *testing.T) {
	for reason, want := range map[state.Reason]string{
		"":               "log",
		state.NoEffect:   "the kernel shows no effect",
		state.Unreadable: "its answers cannot be decoded",
		state.ServerAway: adviceAway,
	} {
		for _, text := range []string{"x", "grpc: x", "answered OK without the effect: x"} {
			r := failed("NodeStageVolume", "Internal", text, 3)
			r.Reason = reason
			if got := (step{kind: plan.Stage, driver: nfs, spec: *nfsVolume().Volume.Spec, retry: r}).advice(); !strings.Contains(got, want) {
				t.Errorf("%q of %q: %s", reason, text, got)
			}
		}
	}
}
