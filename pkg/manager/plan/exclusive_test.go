package plan

import (
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// TestAVolumeOfOnePodIsKeptFromAnotherWhateverIsKnownOfTheFirst: present, on its
// way, of unknown outcome, or leaving.
//
// Items: K01, K03.
func TestAVolumeOfOnePodIsKeptFromAnotherWhateverIsKnownOfTheFirst(t *testing.T) {
	f := Facts{Driver: DriverFacts{Up: true}, Synced: true}
	for _, phase := range []state.Phase{state.Entering, state.Present, state.Leaving} {
		spec := state.Spec{Driver: "d", Handle: "h", AccessModes: []state.AccessMode{state.ReadWriteOncePod}}
		w := state.Want{Spec: spec, Pods: map[state.PodUID]state.WantMount{"b": {MountSpec: mountSpec("b", false)}}}
		m := state.Mount{Fact: state.Fact{Phase: phase, Retry: state.Retry{Attempts: 1, NotBefore: start.Add(1)}}, MountSpec: mountSpec("a", false)}
		v := state.Volume{ID: "d^h", Spec: spec, Mounts: map[state.PodUID]state.Mount{"a": m}}
		if phase != state.Leaving {
			w.Pods["a"] = state.WantMount{MountSpec: mountSpec("a", false)}
		}
		c := chooser{driver: f.Driver, now: start}
		c.build(w, v)
		if why := c.publishHold(w, v, "b"); c.op.Kind == Publish || !strings.Contains(why, "ReadWriteOncePod and it is already in use by another pod, n/a") {
			t.Errorf("%v: %v, %q", phase, c.op, why)
		}
		v.Spec.AccessModes = nil // as of a volume that was taken over while nobody wanted it
		if why := c.publishHold(w, v, "b"); !strings.Contains(why, "ReadWriteOncePod") {
			t.Errorf("%v, and the wish alone says so: %q", phase, why)
		}
	}
}
