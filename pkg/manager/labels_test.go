package manager

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Two pods ask for different labels. If the volume is mounted with a label, the second one
// waits. Otherwise both run and the conflict is reported, until one has left or finished. The
// volume counts once, however many pods there are.
//
// Items: H11, H13, H16, H10.
// Scenarios: U-102, U-103, U-104.
func TestPodsWithDifferentLabels(t *testing.T) {
	for _, applied := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			h, d := newFakeNode(t), newDisk()
			l := live(t, h, d)
			l.up(h)
			pod := func(name, label string) state.PodWant {
				p := podWant(name, "v")
				p.Volumes[0].SELinux = &state.SELinuxWish{Label: label, Applied: applied}
				if applied {
					p.Volumes[0].Mount.SELinuxLabel = label
				}
				return p
			}
			status := func() SELinuxStatus {
				synctest.Wait()
				all := l.Volumes()
				if len(all) != 1 || all[0].SELinux == nil {
					t.Fatalf("volumes: %+v", all)
				}
				return *all[0].SELinux
			}
			l.SetPod(pod("a", "one"))
			mounted(t, l, "a")
			l.SetPod(pod("b", "one"))
			mounted(t, l, "b")
			if s := status(); s.Label != "one" || s.Applied != applied || len(s.Conflicts) != 0 {
				t.Errorf("the same label: %+v", s)
			}
			l.SetPod(pod("c", "two"))
			rest()
			if s := status(); s.Label != "one" || !slices.Equal(s.Conflicts, []state.PodUID{"c"}) {
				t.Errorf("another label: %+v", s)
			}
			if p, _ := l.Pod("c"); p.Ready == applied {
				t.Errorf("applied %v: the other pod is ready: %v", applied, p.Ready)
			}
			for _, name := range []string{"a", "b"} {
				if p, _ := l.Pod(state.PodUID(name)); !p.Ready {
					t.Errorf("pod %s is disturbed", name)
				}
			}
			stopped := pod("a", "one")
			stopped.Stopped = true
			l.SetPod(stopped)
			l.RemovePod("b")
			mounted(t, l, "c")
			if s := status(); s.Label != "two" || len(s.Conflicts) != 0 {
				t.Errorf("after the others ended: %+v", s)
			}
		})
	}
}
