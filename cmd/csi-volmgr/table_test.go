package main

import (
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The status of a volume is the furthest that is certain; a fact in doubt is
// never shown as there or as absent.
func TestVolumeStatusIsTheFurthestThatIsCertain(t *testing.T) {
	in := func(p state.Phase) state.Fact { return state.Fact{Phase: p} }
	mount := func(p state.Phase) map[state.PodUID]state.Mount {
		return map[state.PodUID]state.Mount{"a": {Fact: in(p)}}
	}
	for _, tt := range []struct {
		want   string
		volume state.Volume
	}{
		{"Absent", state.Volume{}},
		{"InDoubt", state.Volume{Attach: in(state.Entering)}},
		{"Attached", state.Volume{Attach: in(state.Present), Stage: in(state.Entering)}},
		{"InDoubt", state.Volume{Stage: in(state.Leaving)}},
		{"Staged", state.Volume{Attach: in(state.Present), Stage: in(state.Present), Mounts: mount(state.Entering)}},
		{"InDoubt", state.Volume{Mounts: mount(state.Leaving)}},
		{"Mounted", state.Volume{Stage: in(state.Present), Mounts: mount(state.Present)}},
	} {
		if got := volumeState(manager.VolumeStatus{Volume: tt.volume}); got != tt.want {
			t.Errorf("%+v: got %s, want %s", tt.volume, got, tt.want)
		}
	}
	if got := volumeState(manager.VolumeStatus{Quarantined: "unreadable"}); got != "Quarantined" {
		t.Errorf("quarantined: got %s", got)
	}
}

// The table shows the failure of the step that waits, not that of another.
func TestVolumeReasonIsThatOfItsStep(t *testing.T) {
	failed := func(text string) state.Retry {
		return state.Retry{Attempts: 1, Call: "C", Code: "Internal", Error: text}
	}
	v := state.Volume{
		Attach: state.Fact{Failed: failed("attach").Kept()}, Stage: state.Fact{Failed: failed("stage").Kept()}, ExpandFailed: failed("expand").Kept(),
		Mounts: map[state.PodUID]state.Mount{"a": {Fact: state.Fact{Failed: failed("publish").Kept()}}},
	}
	for kind, want := range map[plan.Kind]string{
		plan.Attach: "attach", plan.Detach: "attach", plan.Stage: "stage", plan.Unstage: "stage",
		plan.Expand: "expand", plan.Publish: "publish", plan.Unpublish: "publish",
	} {
		got := volumeReason(manager.VolumeStatus{Volume: v, Held: plan.Held{Step: kind, Pod: "a", Reason: "x"}})
		if got != "C answered Internal: "+want {
			t.Errorf("%v: got %q, want that of %s", kind, got, want)
		}
	}
}
