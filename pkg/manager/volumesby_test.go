package manager

import (
	"slices"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

func TestVolumesByAKeyAreSets(t *testing.T) {
	p := volumesBy[state.PodUID]{}
	for _, id := range []state.VolumeID{"a", "b", "a", "c"} {
		p.add("p", id)
	}
	p.add("q", "a")
	for _, step := range []struct {
		id   state.VolumeID
		last bool
		left []state.VolumeID
	}{
		{"x", false, []state.VolumeID{"a", "b", "c"}},
		{"b", false, []state.VolumeID{"a", "c"}},
		{"b", false, []state.VolumeID{"a", "c"}},
		{"a", false, []state.VolumeID{"c"}},
		{"c", true, nil},
		{"c", false, nil},
	} {
		if last := p.remove("p", step.id); last != step.last || !slices.Equal(slices.Sorted(slices.Values(p["p"])), step.left) {
			t.Errorf("without %s: %v, last %v", step.id, p["p"], last)
		}
	}
	if _, there := p["p"]; there || len(p) != 1 {
		t.Errorf("what is empty is kept: %v", p)
	}
}
