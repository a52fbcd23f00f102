package manager

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The list of pods that want a volume is allocated again only if it has changed, for example
// because one pod came as another left.
func TestWantedFollowsPodsThatChangeInOneRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeNode(t)
		l := live(t, h, newDisk())
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		resume := stall(l)
		l.RemovePod("a")
		l.SetPod(podWant("b", "v"))
		resume()
		mounted(t, l, "b")
		if s, _ := l.Volume(wantOf("b", "v").ID); !slices.Equal(s.Wanted, []state.PodUID{"b"}) {
			t.Errorf("wanted by %v", s.Wanted)
		}
	})
}
