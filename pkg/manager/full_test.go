package manager

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// fullDisk is a journal on a full disk: it accepts only removals.
type fullDisk struct {
	*disk
	full  bool
	mixed int // batches with something to make and something to remove
}

func (d *fullDisk) Commit(ctx context.Context, changes map[state.VolumeID]*state.Volume) error {
	makes, removes := false, false
	for _, v := range changes {
		if v == nil {
			continue
		}
		makes = makes || v.Attach.Phase == state.Entering || v.Stage.Phase == state.Entering
		removes = removes || v.Stage.Phase == state.Leaving
		for _, m := range v.Mounts {
			makes = makes || m.Phase == state.Entering
			removes = removes || m.Phase == state.Leaving
		}
	}
	if d.full && makes {
		if removes {
			d.mixed++
		}
		return state.ErrFull
	}
	return d.disk.Commit(ctx, changes)
}

// On a full disk volumes are still removed, even if others are to be mounted at the same
// moment. Those wait, say why, and are mounted when there is room.
//
// Faults: A053.
func TestOnAFullDiskRemovalsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), &fullDisk{disk: newDisk()}
		l := live(t, h, d.disk, func(c *Config) { c.Store = d })
		l.up(h)
		l.SetPod(podWant("stays", "u"))
		l.SetPod(podWant("goes", "v"))
		mounted(t, l, "stays")
		mounted(t, l, "goes")
		rest()
		d.full = true
		before := len(h.calls())
		l.atOnce(func() {
			l.SetPod(podWant("comes", "w"))
			l.RemovePod("goes")
		})
		gone(t, l, "goes")
		rest()
		for _, call := range h.calls()[before:] {
			if !strings.Contains(call, "d^v") {
				t.Errorf("call %q on a full disk", call)
			}
		}
		if _, left := l.Volume("d^v"); left || d.mixed == 0 {
			t.Errorf("the volume is left: %v; batches with both: %d", left, d.mixed)
		}
		if s, _ := l.Pod("stays"); !s.Ready {
			t.Errorf("pod that was there: %+v", s)
		}
		if s, _ := l.Pod("comes"); !strings.Contains(s.Volumes[0].BlockedBy, state.ErrFull.Error()) {
			t.Errorf("pod that comes: %+v", s)
		}
		d.full = false
		mounted(t, l, "comes")
	})
}
