package manager

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// A file system that rejects writes is reported for the stage and each mount that were made
// writable. No call is made, and the report ends when the fault does.
func TestAFileSystemThatTakesNoWritesIsToldAndNotCalledFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeNode(t)
		l := live(t, h, newDisk())
		l.up(h)
		l.SetPod(podWant("a", "v"))
		l.SetPod(podWant("b", "w"))
		mounted(t, l, "a")
		mounted(t, l, "b")
		before := len(h.calls())
		shut, broken := plan.Fault{ShutDown: true}, plan.Fault{AfterError: true}
		l.MountFaults(map[string]plan.Fault{"/stage/v": broken, "/pods/a/v": shut, "/else": broken})
		rest()
		v, _ := l.Volume("d^v")
		if v.Drift["/stage/v"] != broken.String() || v.Drift["/pods/a/v"] != shut.String() || len(v.Drift) != 2 {
			t.Errorf("shown: %v", v.Drift)
		}
		if err, ok := errors.AsType[*VerifyError](l.Verify(t.Context(), "a")); !ok || err.Problems["d^v"] == "" {
			t.Errorf("verified: %v", err)
		}
		if err := l.Verify(t.Context(), "b"); err != nil {
			t.Errorf("another volume's pod: %v", err)
		}
		l.MountFaults(nil)
		rest()
		if v, _ = l.Volume("d^v"); len(v.Drift) > 0 || l.Verify(t.Context(), "a") != nil {
			t.Errorf("when it is over: %v", v.Drift)
		}
		if got := h.calls()[before:]; len(got) > 0 {
			t.Errorf("calls: %q", got)
		}
		l.MountFaults(map[string]plan.Fault{"/stage/v": broken})
		l.RemovePod("a")
		gone(t, l, "a")
		time.Sleep(time.Second)
		if _, known := l.Volume("d^v"); known {
			t.Error("it is known still")
		}
	})
}

func TestWhatWasMadeReadOnlyIsNotToldToBe(t *testing.T) {
	was := state.Seen{Mounted: true, ReadOnly: true}
	v := state.Volume{Staged: was, Stage: state.Fact{Phase: state.Present}, Spec: &state.Spec{StagePath: "/s"}, Mounts: map[state.PodUID]state.Mount{
		"a": {Fact: state.Fact{Phase: state.Present}, MountSpec: state.MountSpec{Target: "/a"}, Seen: was},
		"b": {Fact: state.Fact{Phase: state.Entering}, MountSpec: state.MountSpec{Target: "/b"}, Seen: state.Seen{Mounted: true}},
	}}
	if got := faultsOf(v, map[string]plan.Fault{"/s": {}, "/a": {}, "/b": {}}); len(got) > 0 {
		t.Errorf("told: %v", got)
	}
}
