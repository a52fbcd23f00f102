package plan

import (
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// TestACallForAPodThatLeftMeanwhileDoesNotBringItBack: whatever the driver answers.
func TestACallForAPodThatLeftMeanwhileDoesNotBringItBack(t *testing.T) {
	v := state.Volume{ID: "d^h", SizeBytes: 1, Mounts: map[state.PodUID]state.Mount{"a": {Fact: state.Fact{Phase: state.Entering}}}}
	left := Leave(v, "a")
	for _, kind := range []Kind{Publish, Republish} {
		for _, err := range []*state.CallError{nil, {Outcome: state.Final, Err: errAny}} {
			got := Complete(left, Op{Kind: kind, Pod: "a", Revision: "2"}, Result{Err: err}, start)
			if m := got.Mounts["a"]; m.Phase != state.Leaving || m.Retry().Final {
				t.Errorf("%v, %v: %+v", kind, err, m)
			}
		}
	}
}
