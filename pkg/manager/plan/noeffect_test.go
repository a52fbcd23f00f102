package plan

import (
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Faults: A160.
func TestPublicationsWithoutEffectAreCounted(t *testing.T) {
	lie := Result{Err: &state.CallError{Err: errAny, Reason: state.NoEffect}}
	v := state.Volume{ID: "v", Mounts: map[state.PodUID]state.Mount{"a": {Fact: state.Fact{Phase: state.Entering}, NoEffect: mostNoEffect - 1}}}
	for range 2 {
		v = Complete(v, Op{Kind: Publish, Pod: "a"}, lie, time.Time{})
	}
	if n := v.Mounts["a"].NoEffect; n != mostNoEffect {
		t.Errorf("%d are counted, want %d", n, mostNoEffect)
	}
	v = Complete(markLeaving(v, "a"), Op{Kind: Unpublish, Pod: "a"}, Result{}, time.Time{})
	if len(v.Mounts) != 0 {
		t.Errorf("after Unpublish: %v", v.Mounts)
	}
}
