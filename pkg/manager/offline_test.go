package manager

import (
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Records that are committed while no Manager runs belong to this boot. Earlier records of
// another boot count as not mounted.
func TestAJournalChangesHandsWithinOneBoot(t *testing.T) {
	present := func(id state.VolumeID) *state.Volume {
		return &state.Volume{ID: id, Needs: state.Needs{Stage: true}, Spec: &state.Spec{StagePath: "/" + string(id)}, Stage: state.Fact{Phase: state.Present}}
	}
	s := journal.NewMemory()
	commit := func(boot string, changes map[state.VolumeID]*state.Volume) *Offline {
		t.Helper()
		o, err := OpenOffline(t.Context(), s, boot)
		if err == nil {
			err = o.Commit(t.Context(), changes)
		}
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	commit("boot-1", map[state.VolumeID]*state.Volume{"d^old": present("d^old")})
	o := commit("boot-2", map[state.VolumeID]*state.Volume{"d^new": present("d^new")})
	if got := o.Volumes()["d^old"].Stage.Phase; got != state.Entering {
		t.Errorf("as a daemon would see it: %v", got)
	}
	loaded, err := s.Load(t.Context())
	was, is := loaded.Volumes["d^old"].Stage.Phase, loaded.Volumes["d^new"].Stage.Phase
	if err != nil || loaded.BootID != "boot-2" || was != state.Entering || is != state.Present {
		t.Errorf("boot %s; of the one before: %v, of this one: %v; %v", loaded.BootID, was, is, err)
	}
	commit("boot-2", map[state.VolumeID]*state.Volume{"d^old": nil})
	if loaded, err = s.Load(t.Context()); err != nil || len(loaded.Volumes) != 1 {
		t.Errorf("left: %v, %v", loaded.Volumes, err)
	}
}
