package manager

import (
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
)

// The loop keeps the state of a volume in its row: the loop itself has few fields.
func TestTheLoopHasFewFields(t *testing.T) {
	if n := reflect.TypeFor[loop]().NumField(); n > 15 {
		t.Errorf("it has %d, should have at most 15", n)
	}
}

// held counts what the loop holds.
type held struct {
	volumes, wishes, durable, unsaved, dirty, wakes, suspects, drivers, pods int
}

// holds asks the loop, between two rounds, how much it holds.
func (l *life) holds() held {
	sizes := make(chan held, 1)
	l.post(func(l *loop) {
		h := held{
			volumes: len(l.volumes), durable: len(l.journal.durable), unsaved: len(l.journal.unsaved),
			dirty: len(l.dirty.ids), wakes: len(l.wakes.at), suspects: len(l.suspects),
			drivers: len(l.drivers), pods: len(l.pods.volumes),
		}
		for _, v := range l.volumes {
			if v.want != nil {
				h.wishes++
			}
		}
		sizes <- h
	})
	return <-sizes
}

// TestAChangeTouchesOnlyItsVolumes: work does not grow with the number of other volumes.
func TestAChangeTouchesOnlyItsVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		for i := range 300 {
			l.SetPod(podWant(fmt.Sprint("p", i), fmt.Sprint("v", i)))
		}
		for i := range 300 {
			mounted(t, l, fmt.Sprint("p", i))
		}
		rest()
		if n := l.holds().dirty; n != 0 {
			t.Errorf("%d volumes to be planned on an idle node", n)
		}
		l.SetPod(podWant("new", "new"))
		if n := l.holds().dirty; n > 1 {
			t.Errorf("%d volumes to be planned for one new pod", n)
		}
		mounted(t, l, "new")
		if n := l.holds().wakes; n != 0 {
			t.Errorf("%d timers on a node where nothing waits", n)
		}
	})
}

// The merged wish of a volume is cached for its plans, and not kept when the volume is as wanted:
// a node has thousands of those.
func TestWishesArePutTogetherOnlyWhileAVolumeIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeNode(t)
		l := live(t, h, newDisk())
		l.SetPod(podWant("a", "v"))
		rest()
		if n := l.holds().wishes; n != 1 {
			t.Errorf("while the volume waits for its driver, wishes are kept of %d volumes, want 1", n)
		}
		l.up(h)
		mounted(t, l, "a")
		rest()
		if n := l.holds().wishes; n != 0 {
			t.Errorf("wishes are kept of %d volumes that are as wanted", n)
		}
	})
}

// The loop keeps nothing of a volume that is neither known nor wanted: one that was mounted, one
// whose driver never came, and one whose pod left before it was mounted.
func TestARowEndsWithItsVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeNode(t)
		l := live(t, h, newDisk())
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		stray := podWant("b", "w")
		stray.Volumes[0].ID, stray.Volumes[0].Spec.Driver = "away^w", "away"
		l.SetPod(stray)
		rest()
		l.SetPod(podWant("c", "x"))
		l.RemovePod("c")
		l.RemovePod("a")
		l.RemovePod("b")
		rest()
		if left := l.holds(); left != (held{drivers: 1}) {
			t.Errorf("left: %+v, want the driver alone", left)
		}
	})
}
