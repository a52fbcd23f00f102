package server

import (
	"errors"
	"slices"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The calls of a removed volume or pod are shown under its last name.
//
// Faults: A166.
func TestTheCallsOfWhatIsGoneAreTraced(t *testing.T) {
	s := &Server{cfg: config(t, newBackend(allFine()))}
	for _, c := range []struct {
		kind, name string
		want       []state.VolumeID
	}{
		{"volume", "data", []state.VolumeID{state.SharedID(nfs, "vol-1")}},
		{"volume", "gone", []state.VolumeID{"d^gone", "gone"}},
		{"volume", "d^x", []state.VolumeID{"d^x"}},
		{"pod", "default/gone", []state.VolumeID{"d^gone"}},
	} {
		if got, err := s.traced(c.kind, c.name); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s %s: %q, %v", c.kind, c.name, got, err)
		}
	}
	if _, err := s.traced("pod", "default/never"); !errors.Is(err, ErrNotFound) {
		t.Errorf("of a pod that never was: %v", err)
	}
}
