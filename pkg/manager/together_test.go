package manager

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// What a volume's pods want is put together for its plans, and not kept of one
// that is as wanted: a node has thousands of those.
func TestWishesArePutTogetherOnlyWhileAVolumeIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		l := live(t, h, newDisk())
		l.SetPod(podWant("a", "v"))
		rest()
		kept := func() int {
			n := make(chan int, 1)
			l.post(func(l *loop) {
				kept := 0
				for _, v := range l.volumes {
					if v.want != nil {
						kept++
					}
				}
				n <- kept
			})
			return <-n
		}
		if n := kept(); n != 1 {
			t.Errorf("while the volume waits for its driver, wishes are kept of %d volumes, want 1", n)
		}
		l.up(h)
		mounted(t, l, "a")
		rest()
		if n := kept(); n != 0 {
			t.Errorf("wishes are kept of %d volumes that are as wanted", n)
		}
	})
}

// The list of pods that want a volume is made anew only where it changed, be it
// that one pod came as another went.
func TestWantedFollowsPodsThatChangeInOneRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
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
