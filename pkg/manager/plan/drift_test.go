package plan

import (
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// A mount that has vanished is made again; one that differs otherwise is only reported. A
// covered mount causes no call: the driver would look at the covering mount, and may hang.
func TestDriftIsMendedOrReported(t *testing.T) {
	was := state.Seen{Exists: true, Mounted: true, MountID: 7, Dev: 3, Layers: 1}
	with := func(change func(*state.Seen)) state.Seen {
		s := was
		change(&s)
		return s
	}
	for name, tc := range map[string]struct {
		now            state.Seen
		lost, reported bool
	}{
		"as it was":                 {was, false, false},
		"unmounted":                 {state.Seen{Exists: true}, true, false},
		"gone":                      {state.Seen{}, true, false},
		"another in its place":      {with(func(s *state.Seen) { s.Dev, s.MountID = 4, 8 }), true, false},
		"covered by another device": {with(func(s *state.Seen) { s.Dev, s.MountID, s.Layers = 4, 8, 2 }), false, true},
		"covered by its own device": {with(func(s *state.Seen) { s.MountID, s.Layers = 8, 2 }), false, true},
		"read-only":                 {with(func(s *state.Seen) { s.ReadOnly = true }), false, true},
	} {
		v := state.Volume{
			Spec: &state.Spec{StagePath: "/stage"}, Stage: state.Fact{Phase: state.Present}, Staged: was,
			Mounts: map[state.PodUID]state.Mount{
				"a": {Fact: state.Fact{Phase: state.Present}, MountSpec: state.MountSpec{Target: "/a"}, Seen: was},
				"b": {Fact: state.Fact{Phase: state.Leaving}, MountSpec: state.MountSpec{Target: "/b"}, Seen: was},
			},
		}
		seen := map[string]state.Seen{"/stage": tc.now, "/a": tc.now, "/b": tc.now}
		got, changes := Adopt(v, true, seen)
		if lost := got.Stage.Phase == state.Entering && got.Mounts["a"].Phase == state.Entering; lost != tc.lost || lost != (len(changes) == 2) {
			t.Errorf("%s: taken for lost: %v, want %v: %v", name, lost, tc.lost, changes)
		}
		drift := Drift(got, seen)
		if reported := drift["/stage"] != "" && drift["/a"] != ""; reported != tc.reported || !reported && len(drift) > 0 || drift["/b"] != "" {
			t.Errorf("%s: reported: %v, want %v", name, drift, tc.reported)
		}
		if drift := Drift(got, nil); len(drift) > 0 {
			t.Errorf("%s: reported without a look: %v", name, drift)
		}
	}
}

// The advice is the same for every fault.
func TestWhatTakesNoWritesIsSaidInOneForm(t *testing.T) {
	const mend = ": the kernel log may say why; once that is repaired, restart its pods"
	for fault, want := range map[Fault]string{
		{}:                                 "it has become read-only",
		{AfterError: true}:                 "its file system has become read-only after an error",
		{ShutDown: true, AfterError: true}: "its file system was shut down after an error",
	} {
		if got := fault.String(); got != want+mend {
			t.Errorf("%+v: %q", fault, got)
		}
	}
	if got := drifted(state.Seen{Mounted: true}, state.Seen{Mounted: true, ReadOnly: true}); got != (Fault{}).String() {
		t.Errorf("by the mount's own flags: %q", got)
	}
}
