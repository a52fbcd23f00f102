package events

import (
	"fmt"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Each failure has the reason that the kubelet uses, or a new one if the kubelet has none;
// a success has an event only if a caller waits for it.
func TestReasonsOfEvents(t *testing.T) {
	for op, want := range map[plan.Kind]string{
		plan.Attach: "FailedAttachVolume SuccessfulAttachVolume FailedAttachVolume", plan.Detach: "FailedDetachVolume  FailedDetachVolume",
		plan.Stage: "FailedMount  FailedMapVolume", plan.Publish: "FailedMount SuccessfulMountVolume FailedMapVolume", plan.Republish: "FailedMount  FailedMapVolume",
		plan.Expand:    "VolumeResizeFailed FileSystemResizeSuccessful VolumeResizeFailed",
		plan.Unpublish: "FailedUnMount  FailedUnmapDevice", plan.Unstage: "FailedUnMount  FailedUnmapDevice",
	} {
		if got := fmt.Sprint(callReason(op, true, false), " ", callReason(op, false, false), " ", callReason(op, true, true)); got != want {
			t.Errorf("%v: got %q, want %q", op, got, want)
		}
	}
	for step, want := range map[plan.Kind]string{plan.Attach: "FailedAttachVolume", plan.Expand: "FileSystemResizeFailed", plan.Stage: "FailedMount"} {
		if got := waitReason(manager.PodVolumeStatus{Step: step}); got != want {
			t.Errorf("a wait for %v: got %q, want %q", step, got, want)
		}
	}
	for phase, want := range map[state.Phase]string{state.Leaving: "FailedUnMount", state.Absent: "FailedMount"} {
		if got := waitReason(manager.PodVolumeStatus{Step: plan.Unpublish, Phase: phase}); got != want {
			t.Errorf("a wait for Unpublish where it is %v: got %q, want %q", phase, got, want)
		}
	}
	if got := waitReason(manager.PodVolumeStatus{Step: plan.Resolve, Mode: state.Block}); got != "FailedMapVolume" {
		t.Errorf("a wait of a raw block volume: got %q", got)
	}
}
