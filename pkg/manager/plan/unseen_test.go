package plan

import (
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Rule 5: a mount that was begun, and may have been made and reported, is not replaced by another
// form while the kernel cannot say whether it exists.
func TestAMountThatCannotBeLookedAtIsNotMadeOtherwise(t *testing.T) {
	w := groupWish(map[state.PodUID]int64{"a": 0})
	f := Facts{Driver: DriverFacts{Up: true, Stage: true}, Synced: true, Keep: map[state.PodUID]string{"a": "cannot be looked at"}}
	v, _, _ := settle(t, w, state.Volume{ID: "d^h"}, f)
	m := v.Mounts["a"]
	m.Phase, m.ReadOnly = state.Entering, true
	v.Mounts["a"] = m
	if op, held := Next(w, v, f, start); op.Kind != None || held.Reason != "cannot be looked at" || held.Pod != "a" {
		t.Errorf("%v, held %+v", op, held)
	}
	f.Keep = nil
	if op, _ := Next(w, v, f, start); op.Kind != Unpublish {
		t.Errorf("once it is known: %v", op)
	}
}
