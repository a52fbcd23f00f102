package manager

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// larger is a pod whose volume was of 1 byte when the pod came, and is to have 5.
func larger(pod string) state.PodWant {
	p := podWant(pod, "v")
	p.Volumes[0].HaveBytes, p.Volumes[0].SizeBytes = 1, 5
	return p
}

// expandFails has every Expand fail with the outcome.
func (h *fakeNode) expandFails(o state.Outcome) {
	h.fails(func(call string) fault {
		if strings.HasPrefix(call, "Expand") {
			return fault{err: &state.CallError{Outcome: o, Call: "NodeExpandVolume", Code: "Internal", Err: errors.New("no")}}
		}
		return fault{}
	})
}

// An external-resizer answers each failure of the node with another request of the same
// size, at once. The driver has its pauses all the same.
//
// Faults: A132.
func TestHowFarAnExpansionIsEndsNoPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		h.expandFails(state.Final)
		p := larger("a")
		tell := func(noGrow string) {
			p.Volumes = slices.Clone(p.Volumes)
			p.Volumes[0].NoGrow = noGrow
			p.Volumes[0].HaveBytes++
			l.SetPod(p)
			synctest.Wait()
		}
		calls := func(when string, want int) {
			t.Helper()
			h.mu.Lock()
			defer h.mu.Unlock()
			if n := h.took["Expand"]; n != want {
				t.Errorf("%d calls %s, want %d", n, when, want)
			}
		}
		tell("")
		rest()
		calls("for a request that was answered", 1)
		for range 9 {
			tell("infeasible")
			tell("")
		}
		calls("for requests within a moment, after an hour", 2)
		rest()
		calls("when the pause is over", 3)
		rest()
		calls("for a request that was answered", 3)
	})
}

// What is mounted and has not grown yet is not the pod's: it waits, with the
// failure to read, while the call is repeated with pauses; it goes as any other;
// and a pod that comes later has it when it has grown.
//
// Items: I02, I10, I17, N-101.
func TestAPodWaitsUntilItsVolumeHasGrown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		h.expandFails(state.Failed)
		l.SetPod(larger("a"))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		s, _ := l.Pod("a")
		v := s.Volumes[0]
		if s.Ready || v.Mounted || v.Phase != state.Present || v.Step != plan.Expand || v.Retry.Call != "NodeExpandVolume" || len(l.GetMountedVolumesForPod("a")) > 0 {
			t.Errorf("while it fails: %+v", v)
		}
		if n := h.took["Expand"]; n < 8 || n > 20 {
			t.Errorf("%d calls in ten minutes, want them with pauses", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := l.WaitForAttachAndMount(ctx, "a"); err == nil || !strings.Contains(err.Error(), "NodeExpandVolume") {
			t.Errorf("a wait for it: %v", err)
		}
		l.RemovePod("a")
		gone(t, l, "a")
		rest()
		if h.took["Unpublish"] != 1 || h.took["Unstage"] != 1 {
			t.Errorf("removed with %v", h.took)
		}
		h.fails(nil)
		before := h.took["Expand"]
		l.SetPod(larger("b"))
		mounted(t, l, "b")
		rest()
		if n := h.took["Expand"] - before; n != 1 || d.records(t)["d^v"].SizeBytes != 5 {
			t.Errorf("%d calls, record %+v", n, d.records(t)["d^v"])
		}
	})
}

// If the driver says that it cannot expand the volume, no pod waits any longer, and the driver
// is not asked again until another size is wanted.
//
// Items: I08, I09.
func TestAPodDoesNotWaitForWhatCannotGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		h.expandFails(state.Final)
		l.SetPod(larger("a"))
		mounted(t, l, "a")
		rest()
		if h.took["Expand"] != 1 {
			t.Errorf("%d calls", h.took["Expand"])
		}
		p := larger("a")
		p.Volumes[0].SizeBytes = 4
		l.SetPod(p)
		rest()
		if h.took["Expand"] != 2 {
			t.Errorf("%d calls after another size was asked for", h.took["Expand"])
		}
		if s, _ := l.Pod("a"); !s.Ready {
			t.Errorf("the pod has it no more: %+v", s)
		}
	})
}

// If a node has nothing to do, a volume has the wanted size, and OnExpanded reports a size that is
// new. A pod that only reads asks for no size.
//
// Items: I01.
func TestAVolumeThatGrowsWithoutTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		var told []int64
		l := live(t, h, d, func(c *Config) { c.OnExpanded = func(v state.Volume) { told = append(told, v.SizeBytes) } })
		l.DriverUp(DriverInfo{Name: "d", Stage: true, MountsTarget: true}, h)
		l.SetPod(larger("a"))
		mounted(t, l, "a")
		reader := podWant("b", "v")
		reader.Volumes[0].SizeBytes, reader.Volumes[0].Mount.ReadOnly = 0, true
		l.SetPod(reader)
		mounted(t, l, "b")
		rest()
		if h.took["Expand"] != 0 || d.records(t)["d^v"].SizeBytes != 5 {
			t.Errorf("%d calls, record %+v", h.took["Expand"], d.records(t)["d^v"])
		}
		equal(t, "told of sizes", told, []int64{5})
		p := larger("a")
		p.Volumes[0].SizeBytes = 9
		l.SetPod(p)
		rest()
		equal(t, "told of sizes", told, []int64{5, 9})
	})
}
