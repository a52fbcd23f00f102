package manager

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// follower reads a feed and keeps what it returns.
type follower struct {
	*PodFeed
	pods map[state.PodUID]PodStatus
}

// take returns the names of the pods that the feed returned.
func (f *follower) take() (names []string) {
	changed, gone := f.Take()
	for _, p := range changed {
		f.pods[p.Pod.UID] = p
		names = append(names, p.Pod.Name)
	}
	for _, p := range gone {
		delete(f.pods, p.UID)
		names = append(names, p.Name+" gone")
	}
	return names
}

// TestAFeedTellsWhatChangedAndNothingElse: a reader that follows it knows as much as a list of
// all pods shows, and gets only the pods that changed.
func TestAFeedTellsWhatChangedAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		f := &follower{l.FollowPods(), map[state.PodUID]PodStatus{}}
		defer f.Close()
		expect := func(what string, want ...string) {
			t.Helper()
			synctest.Wait()
			select {
			case <-f.Changed():
			default:
				t.Errorf("%s: nothing is told", what)
			}
			if got := f.take(); !slices.Equal(got, want) {
				t.Errorf("%s: told of %q, want %q", what, got, want)
			}
			known := slices.SortedFunc(maps.Values(f.pods), comparePods)
			if diff := cmp.Diff(l.Pods(), known); diff != "" {
				t.Errorf("%s: all pods (-) and what was told (+):\n%s", what, diff)
			}
		}
		expect("the start", "a")
		l.SetPod(podWant("b", "w"))
		mounted(t, l, "b")
		expect("another pod", "b")
		l.SetPod(podWant("c", "w"))
		mounted(t, l, "c")
		expect("a pod with the volume of another", "b", "c")
		l.RemovePod("c")
		l.RemovePod("a")
		rest()
		expect("two that leave", "b", "a gone", "c gone")
		if got := f.take(); len(got) > 0 {
			t.Errorf("told of %q, and nothing changed", got)
		}
		l.DriverDown("d", "gone")
		synctest.Wait()
		l.SetPod(podWant("b", "w", "x"))
		expect("a volume more, of a driver that is down", "b")
		l.up(h)
		mounted(t, l, "b")
		expect("the driver is up again", "b")
		f.Close()
		l.SetPod(podWant("e", "y"))
		mounted(t, l, "e")
		if got := f.take(); len(got) > 0 {
			t.Errorf("told of %q after its end", got)
		}
	})
}
