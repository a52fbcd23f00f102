package manager

import (
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// lose removes records from the journal, which reports a loss from then on.
func (d *disk) lose(t *testing.T, ids ...state.VolumeID) {
	t.Helper()
	gone := map[state.VolumeID]*state.Volume{}
	for _, id := range ids {
		gone[id] = nil
	}
	if err := d.Memory.Commit(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	d.lost = state.Recovery{Why: "the file was cut"}
}

// places parses the paths of this package's tests.
func places(c *Config) {
	c.Place = func(p string) (state.Place, bool) {
		place := state.Place{Path: p, Name: path.Base(p)}
		if pod, is := strings.CutPrefix(path.Dir(p), "/pods/"); is {
			place.Pod = state.PodUID(pod)
		}
		return place, strings.HasPrefix(p, "/pods/") || strings.HasPrefix(p, "/stage/")
	}
}

func exclusive(p state.PodWant) state.PodWant {
	for i := range p.Volumes {
		p.Volumes[i].Spec.AccessModes = []state.AccessMode{state.ReadWriteOncePod}
	}
	return p
}

// TestALostRecordOfAnExclusiveVolume: of two pods that want the volume, the one that has it
// mounted keeps it, whichever comes first.
//
// Faults: A186.
func TestALostRecordOfAnExclusiveVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(exclusive(podWant("z", "v")))
		mounted(t, l, "z")
		if err := l.stop(); err != nil {
			t.Fatal(err)
		}
		d.lose(t, "d^v")
		before := len(h.calls())
		l = live(t, h, d, places)
		l.up(h)
		l.SetPod(exclusive(podWant("a", "v")))
		rest()
		equal(t, "calls before it is known what is mounted", h.calls()[before:], nil)
		l.MountsSeen(oneLayer("/stage/v", "/pods/z/v"))
		rest()
		equal(t, "calls while the pod that has it is not known", h.calls()[before:], nil)
		if v, _ := l.Volume("d^v"); !v.Held.Operator || v.Held.Step != plan.Stage || !strings.Contains(v.Held.Reason, "pod z") {
			t.Errorf("held: %+v", v.Held)
		}
		if u := l.Unrecorded(); u.Unknown || len(u.ofVolume("/stage/v", "v")) != 2 || len(u.ofVolume("/stage/w", "w")) != 0 {
			t.Errorf("unrecorded: %+v", u)
		}
		if _, all := l.AttachedInUse(); all {
			t.Error("what is in use is said to be known")
		}
		l.SetPod(exclusive(podWant("z", "v")))
		mounted(t, l, "z")
		rest()
		equal(t, "calls once it is", h.calls()[before:], []string{"Stage d^v", "Publish d^v z"})
		if u := l.Unrecorded(); u.Unknown || len(u.Places) != 0 {
			t.Errorf("unrecorded: %+v", u)
		}
		if _, all := l.AttachedInUse(); !all {
			t.Error("what is in use is said not to be known")
		}
		l.RemovePod("z")
		mounted(t, l, "a")
	})
}

// An attachment of a journal that may have lost newer records is not removed on that record's word: the volume may have been
// detached and attached again since. Unmounting and unstaging, which the kernel shows, do not wait. The wait ends when an
// operator accepts the loss, or when a pod has used the volume again.
//
// Faults: A186.
func TestAnOldAttachmentIsNotRemovedBeforeTheLossIsAccepted(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, l *life){
		"an operator accepts": func(_ *testing.T, l *life) { l.AcceptUnrecorded() },
		"a pod uses it": func(t *testing.T, l *life) {
			l.SetPod(podWant("b", "v"))
			mounted(t, l, "b")
			l.RemovePod("b")
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			h, d := newFakeNode(t), newDisk()
			l := live(t, h, d)
			l.DriverUp(DriverInfo{Name: "d", Attach: true, Stage: true, MountsTarget: true}, h)
			l.SetPod(podWant("u", "v"))
			mounted(t, l, "u")
			if err := l.stop(); err != nil {
				t.Fatal(err)
			}
			d.lose(t)
			before := len(h.calls())
			l = live(t, h, d, sources("s"), places)
			l.DriverUp(DriverInfo{Name: "d", Attach: true, Stage: true, MountsTarget: true}, h)
			l.MountsSeen(oneLayer("/stage/v", "/pods/u/v")) // before anything is unmounted
			rest()
			l.SourceSynced("s")
			rest()
			calls := h.calls()[before:]
			if slices.Contains(calls, "Detach d^v") || !slices.Contains(calls, "Unstage d^v") {
				t.Errorf("%s: calls %v", name, calls)
			}
			v, _ := l.Volume("d^v")
			if !v.Held.Operator || !strings.Contains(v.Held.Reason, "csi-volmgr journal accept") {
				t.Errorf("%s: held %+v", name, v.Held)
			}
			end(t, l)
			rest()
			if calls := h.calls()[before:]; !slices.Contains(calls, "Detach d^v") {
				t.Errorf("%s: calls in the end %v", name, calls)
			}
		})
	}
}

// TestWhatHasNoRecordStaysUntilItIsUnderstood: until the mount is gone or an operator accepts it,
// the stage below an unknown pod is not removed and the volume is not given to another pod. A
// volume without a mount is made as usual.
//
// Faults: A186.
func TestWhatHasNoRecordStaysUntilItIsUnderstood(t *testing.T) {
	for name, end := range map[string]func(l *life){
		"the mount goes":        func(l *life) { l.MountsSeen(oneLayer("/stage/v")) },
		"an operator accepts":   func(l *life) { l.AcceptUnrecorded() },
		"its pod is told of":    func(l *life) { l.SetPod(podWant("u", "v")) },
		"the pod comes, leaves": func(l *life) { l.SetPod(podWant("u", "v")); rest(); l.RemovePod("u") },
	} {
		synctest.Test(t, func(t *testing.T) {
			h, d := newFakeNode(t), newDisk()
			l := live(t, h, d)
			l.up(h)
			l.SetPod(podWant("u", "v"))
			l.SetPod(podWant("b", "v"))
			mounted(t, l, "u")
			mounted(t, l, "b")
			if err := l.stop(); err != nil {
				t.Fatal(err)
			}
			v := d.records(t)["d^v"]
			delete(v.Mounts, "u") // as the backup has it
			if err := d.Commit(t.Context(), map[state.VolumeID]*state.Volume{"d^v": &v}); err != nil {
				t.Fatal(err)
			}
			d.lose(t)
			before := len(h.calls())
			l = live(t, h, d, sources("s"), places)
			l.up(h)
			l.SetPod(podWant("b", "v", "w"))
			l.SetPod(podWant("c", "v"))
			l.SourceSynced("s")
			l.MountsSeen(oneLayer("/stage/v", "/pods/b/v", "/pods/u/v"))
			mounted(t, l, "b")
			l.RemovePod("b")
			rest()
			calls := h.calls()[before:]
			if slices.Contains(calls, "Unstage d^v") || slices.Contains(calls, "Publish d^v c") || !slices.Contains(calls, "Publish d^w b") {
				t.Errorf("%s: calls %v", name, calls)
			}
			end(l)
			mounted(t, l, "c")
			if l.Unrecorded().Places != nil {
				t.Errorf("%s: %v", name, l.Unrecorded())
			}
		})
	}
}
