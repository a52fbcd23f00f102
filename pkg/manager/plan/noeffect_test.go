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

// A publication that succeeded but for a part is there, and its record says what is missing until the next one has it.
func TestAPublicationSaysWhatItLacks(t *testing.T) {
	v := state.Volume{ID: "v", Mounts: map[state.PodUID]state.Mount{"a": {Fact: state.Fact{Phase: state.Entering}}}}
	for _, step := range []struct {
		r    Result
		want string
	}{
		{Result{Err: &state.CallError{Outcome: state.Partly, Err: errAny}}, errAny.Error()},
		{Result{}, ""},
	} {
		v = Complete(v, Op{Kind: Publish, Pod: "a"}, step.r, time.Time{})
		if m := v.Mounts["a"]; m.Phase != state.Present || m.GroupFailed != step.want || m.Failed != nil {
			t.Errorf("%+v, want it with %q missing", m, step.want)
		}
	}
}
