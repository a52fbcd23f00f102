package manager

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// replaced is podWant(pod, "v") after PersistentVolume v was replaced by one with another handle:
// another volume at the same target.
func replaced(pod string) state.PodWant {
	p := podWant(pod, "v")
	vw := &p.Volumes[0]
	vw.ID, vw.Spec.Handle, vw.Spec.StagePath = "d^w", "w", "/stage/w"
	return p
}

// block makes p's only volume a raw block volume, which is staged under its name.
func block(p state.PodWant) state.PodWant {
	p.Volumes[0].Spec.Mode, p.Volumes[0].Spec.StagePath = state.Block, "/staging/v"
	return p
}

// If the PersistentVolume of a running pod is replaced, the pod keeps what it has. The other
// volume is not mounted over it, nor taken for it, and says what it waits for.
func TestAReplacedVolumeWaitsForThePathOfTheOldOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		l.SetPod(replaced("a"))
		rest()
		equal(t, "calls", h.calls(), []string{"Stage d^v", "Publish d^v a", "Stage d^w"})
		p, _ := l.Pod("a")
		if p.Ready || len(p.Volumes) != 2 || p.Volumes[0].Code != plan.PathTaken || !strings.Contains(p.Volumes[0].BlockedBy, "has another handle now, as after its PersistentVolume was replaced: volume d^v ") {
			t.Errorf("status: %+v", p)
		}
		l.RemovePod("a")
		gone(t, l, "a")
		rest()
		if !h.clean() {
			t.Errorf("left: %v", h.calls())
		}
	})
}

// A pod leaves, its volume's Unpublish fails, and a pod of the same UID comes with another
// volume at the same target. That one is mounted after the old one is unmounted, or given up, so
// that the removal of the old one does not take it from the running pod.
func TestARemovalDoesNotUnmountAnotherVolumeAtItsPath(t *testing.T) {
	for _, giveUp := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h, d := newFakeNode(t), newDisk()
			l := live(t, h, d)
			l.up(h)
			l.SetPod(podWant("a", "v"))
			mounted(t, l, "a")
			h.fails(func(call string) fault {
				if call == "Unpublish d^v a" {
					return answer(state.Failed, "NodeUnpublishVolume", "Internal")
				}
				return fault{}
			})
			l.RemovePod("a")
			l.SetPod(replaced("a"))
			rest()
			if calls := h.calls(); slices.Contains(calls, "Publish d^w a") {
				t.Fatalf("two volumes at one target: %v", calls)
			}
			if giveUp {
				for l.Forget(t.Context(), "d^v") != nil {
					time.Sleep(time.Second) // a call is in flight
				}
			}
			h.fails(nil)
			mounted(t, l, "a")
			rest()
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.published["/pods/a/v"] != "d^w" {
				t.Errorf("the pod has %q: %v", h.published["/pods/a/v"], h.log)
			}
		})
	}
}

// The staging path of a raw block volume has the PersistentVolume's name. A volume that replaces
// another of its name is staged after that one is unstaged.
func TestABlockVolumeWaitsForTheStageOfTheOldOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(block(podWant("a", "v")))
		mounted(t, l, "a")
		h.fails(func(call string) fault {
			if call == "Unstage d^v" {
				return answer(state.Failed, "NodeUnstageVolume", "Internal")
			}
			return fault{}
		})
		l.RemovePod("a")
		l.SetPod(block(replaced("b")))
		rest()
		if calls := h.calls(); slices.Contains(calls, "Stage d^w") {
			t.Fatalf("two volumes at one staging path: %v", calls)
		}
		h.fails(nil)
		mounted(t, l, "b")
		rest()
		if h.staged["/staging/v"] == "" {
			t.Errorf("the pod's volume is not staged: %v", h.calls())
		}
	})
}
