package server

import (
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// A person is sent to the driver's log only if the driver was called.
func TestAdviceAboutACallThatWasNotMade(t *testing.T) {
	for _, tt := range []struct {
		retry RetryStatus
		log   bool
	}{
		{RetryStatus{Attempts: 1, Call: "NodeStageVolume", Code: "Internal"}, true},
		{RetryStatus{Attempts: 1, Call: "NodeStageVolume"}, true},
		{RetryStatus{Attempts: 1, Call: "NodeStageVolume", Reason: state.BadSource}, false},
		{RetryStatus{Attempts: 1, Call: "NodeStageVolume", Reason: state.NoObject}, false},
	} {
		s := step{driver: "d", retry: tt.retry.retry()}
		ofClaim := adviceOnCall(Cause{Of: "d"}, ClaimStatus{Retry: tt.retry})
		for _, got := range []string{s.adviceOnFailure(), ofClaim} {
			if strings.Contains(got, "log of driver d") != tt.log || strings.Contains(got, "driver d was not called") == tt.log {
				t.Errorf("%+v: %s", tt.retry, got)
			}
		}
	}
}
