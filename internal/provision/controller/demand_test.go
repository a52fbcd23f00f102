package controller

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// In a cluster that drives the drivers itself, the controller asks a driver for its capabilities only when a claim, a
// snapshot, a listing or a volume to attach needs them, and only once.
func TestADriverIsAskedOnDemand(t *testing.T) {
	for what, demand := range map[string]func(h *fakeNode){
		"a claim": func(h *fakeNode) {
			h.set(testClaim("a", mib))
			h.bound(testKey("a"))
		},
		"a snapshot": func(h *fakeNode) {
			h.snap(testSnapshot("s", "static-1"))
			if s := h.snapshot("s"); s.Phase != Ready {
				h.t.Errorf("%+v", s)
			}
		},
		"a volume": func(h *fakeNode) {
			v := state.Volume{Spec: &state.Spec{Driver: h.backend.name, Handle: "static-1"}}
			if _, err := h.c.Attach(h.t.Context(), v); err == nil {
				h.t.Error("a volume that is not there was attached")
			}
		},
		"what is stored": func(h *fakeNode) {
			if _, err := h.c.Stored(h.t.Context()); err != nil {
				h.t.Error(err)
			}
			synctest.Wait()
		},
	} {
		bubble(t, newBackend(), func(t *testing.T, h *fakeNode) {
			h.end()
			h.lazy = true
			h.live()
			h.up()
			other := testClaim("other", mib)
			other.Class.Provisioner = "other.example.com"
			h.set(other)
			if asked := slices.Clone(h.backend.asked); len(asked) != 0 {
				t.Errorf("nothing is of it, and it was asked %q", asked)
			}
			h.up() // the driver restarts
			demand(h)
			want := []string{"GetPluginCapabilities", "NodeGetCapabilities", "ControllerGetCapabilities"}
			if got := h.backend.asked; !slices.Equal(got, want) {
				t.Errorf("for %s it was asked %q, want %q", what, got, want)
			}
		})
	}
}
