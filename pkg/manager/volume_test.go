package manager

import (
	"reflect"
	"testing"
	"testing/synctest"
)

// What the loop knows of a volume is in its row: the loop itself has few fields.
func TestTheLoopHasFewFields(t *testing.T) {
	if n := reflect.TypeFor[loop]().NumField(); n > 15 {
		t.Errorf("it has %d, should have at most 15", n)
	}
}

// Nothing stays of a volume that is neither known nor wanted: of one that was mounted,
// one whose driver never came, and one that lost its pod as it was to be mounted.
func TestARowEndsWithItsVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
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
		left := make(chan []int, 1)
		l.post(func(l *loop) {
			left <- []int{len(l.volumes), len(l.journal.durable), len(l.journal.unsaved), len(l.wakes.at), len(l.suspects), len(l.drivers), len(l.pods.has)}
		})
		equal(t, "rows, durable and unsaved records, wakes, suspects, drivers, pods", <-left, []int{0, 0, 0, 0, 0, 1, 0})
	})
}
