package plan

import (
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// TestAVolumeOfOnePodIsKeptFromAnotherWhateverIsKnownOfTheFirst: whether its mount is present,
// in flight, of unknown outcome, or leaving.
//
// Items: K01, K03.
func TestAVolumeOfOnePodIsKeptFromAnotherWhateverIsKnownOfTheFirst(t *testing.T) {
	f := Facts{Driver: DriverFacts{Up: true}, Synced: true}
	for _, phase := range []state.Phase{state.Entering, state.Present, state.Leaving} {
		spec := state.Spec{Driver: "d", Handle: "h", AccessModes: []state.AccessMode{state.ReadWriteOncePod}}
		w := state.Want{Spec: new(spec), Pods: map[state.PodUID]state.WantMount{"b": {MountSpec: mountSpec("b", false)}}}
		m := state.Mount{Fact: state.Fact{Phase: phase, Failed: &state.Retry{Attempts: 1, NotBefore: start.Add(1)}}, MountSpec: mountSpec("a", false)}
		v := state.Volume{ID: "d^h", Spec: new(spec), Mounts: map[state.PodUID]state.Mount{"a": m}}
		if phase != state.Leaving {
			w.Pods["a"] = state.WantMount{MountSpec: mountSpec("a", false)}
		}
		c := chooser{Facts: f, now: start}
		c.build(w, v)
		if why := c.publishHold(w, v, "b"); c.op.Kind == Publish || !strings.Contains(why.text, "volume uses the ReadWriteOncePod access mode and is already in use by another pod, n/a") {
			t.Errorf("%v: %v, %q", phase, c.op, why)
		}
		v.Spec.AccessModes = nil // as of a volume that was taken over while no pod wanted it
		if why := c.publishHold(w, v, "b"); why.code != InUse {
			t.Errorf("%v, and the wish alone says so: %q", phase, why)
		}
	}
}

// TestOfPodsThatMayHaveOneVolumeAllButOneYield: after a takeover a volume may be mounted for
// several pods. A pod that uses it keeps it, else the first one does. A mount that containers may
// be using is not removed.
func TestOfPodsThatMayHaveOneVolumeAllButOneYield(t *testing.T) {
	spec := state.Spec{Driver: "d", Handle: "h", AccessModes: []state.AccessMode{state.ReadWriteOncePod}}
	entering := state.Fact{Phase: state.Entering}
	for name, test := range map[string]struct {
		seen, keep state.PodUID // whose mount was seen in this boot; whose is kept
		want       Op
	}{
		"none uses it":     {"", "", Op{Kind: Unpublish, Pod: "b"}},
		"the first does":   {"a", "", Op{Kind: Unpublish, Pod: "b"}},
		"the second does":  {"b", "", Op{Kind: Unpublish, Pod: "a"}},
		"it may be in use": {"b", "a", Op{}},
	} {
		t.Run(name, func(t *testing.T) {
			w := state.Want{Spec: new(spec), Pods: map[state.PodUID]state.WantMount{}}
			v := state.Volume{ID: "d^h", Spec: new(spec), Mounts: map[state.PodUID]state.Mount{}}
			for _, pod := range []state.PodUID{"a", "b"} {
				w.Pods[pod] = state.WantMount{MountSpec: mountSpec(pod, false)}
				v.Mounts[pod] = state.Mount{Fact: entering, MountSpec: mountSpec(pod, false), Seen: state.Seen{Mounted: pod == test.seen}}
			}
			f := Facts{Driver: DriverFacts{Up: true}, Synced: true, Keep: map[state.PodUID]string{}}
			if test.keep != "" {
				f.Keep[test.keep] = "its containers may run"
			}
			op, held := Next(w, v, f, start)
			if op.Kind != test.want.Kind || op.Pod != test.want.Pod || op.Kind == None && held.Reason == "" {
				t.Errorf("%v, %+v", op, held)
			}
			if spec := v.Spec; op.Kind == Unpublish { // if the volume may have any number of pods, none yields
				spec.AccessModes = nil
				v.Spec, w.Spec = spec, spec
				if op, _ := Next(w, v, f, start); op.Kind == Unpublish {
					t.Errorf("%v of a volume that is not for one pod", op)
				}
			}
		})
	}
}
