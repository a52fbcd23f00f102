package main

import (
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The status of a volume is the furthest state that is certain; an uncertain fact is never
// shown as present or as absent.
func TestVolumeStatusIsTheFurthestThatIsCertain(t *testing.T) {
	in := func(p state.Phase) server.Fact { return server.Fact{Phase: p} }
	mount := func(p state.Phase) map[state.PodUID]server.VolumeMount {
		return map[state.PodUID]server.VolumeMount{"a": {Fact: in(p)}}
	}
	for _, tt := range []struct {
		want   string
		volume server.Volume
	}{
		{"Absent", server.Volume{}},
		{"InDoubt", server.Volume{Attach: in(state.Entering)}},
		{"Attached", server.Volume{Attach: in(state.Present), Stage: in(state.Entering)}},
		{"InDoubt", server.Volume{Stage: in(state.Leaving)}},
		{"Staged", server.Volume{Attach: in(state.Present), Stage: in(state.Present), Mounts: mount(state.Entering)}},
		{"InDoubt", server.Volume{Mounts: mount(state.Leaving)}},
		{"Mounted", server.Volume{Stage: in(state.Present), Mounts: mount(state.Present)}},
	} {
		if got := volumeState(server.VolumeStatus{Volume: tt.volume}); got != tt.want {
			t.Errorf("%+v: got %s, want %s", tt.volume, got, tt.want)
		}
	}
	if got := volumeState(server.VolumeStatus{Quarantined: "unreadable"}); got != "Quarantined" {
		t.Errorf("quarantined: got %s", got)
	}
}

// The table shows the failure of the step that waits, not of another step.
func TestVolumeReasonIsThatOfItsStep(t *testing.T) {
	failed := func(text string) *server.RetryStatus {
		return &server.RetryStatus{Attempts: 1, Call: "C", Code: "Internal", Error: text}
	}
	v := server.Volume{
		Attach: server.Fact{Failed: failed("attach")}, Stage: server.Fact{Failed: failed("stage")}, ExpandFailed: failed("expand"),
		Mounts: map[state.PodUID]server.VolumeMount{"a": {Fact: server.Fact{Failed: failed("publish")}}},
	}
	for kind, want := range map[plan.Kind]string{
		plan.Attach: "attach", plan.Detach: "attach", plan.Stage: "stage", plan.Unstage: "stage",
		plan.Expand: "expand", plan.Publish: "publish", plan.Unpublish: "publish",
	} {
		got := volumeReason(server.VolumeStatus{Volume: v, Held: server.Held{Step: kind, Pod: "a", Reason: "x"}})
		if got != "C answered Internal: "+want {
			t.Errorf("%v: got %q, want that of %s", kind, got, want)
		}
	}
}

// A pod that has ended is not "Mounting" for ever.
func TestPodStatusOfThePodThatHasEnded(t *testing.T) {
	for want, p := range map[string]server.PodStatus{
		"Ended": {Listed: true}, "Mounted": {Listed: true, Ready: true},
		"Mounting": {Listed: true, Volumes: make([]server.PodVolumeStatus, 1)}, "Leaving": {},
	} {
		if got := podState(p); got != want {
			t.Errorf("%+v: got %s, want %s", p, got, want)
		}
	}
}
