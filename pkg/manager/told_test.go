package manager

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// afterATold starts a second daemon after the first one was killed when its pod knew of a mount
// and the journal did not. The pod now wants another form of mount.
func afterATold(t *testing.T, h *fakeNode, opts ...option) *life {
	t.Helper()
	d := newDisk()
	l := live(t, h, d)
	l.up(h)
	d.fail(1) // the intents are written, and no result
	l.SetPod(podWant("a", "v"))
	mounted(t, l, "a")
	_ = l.stop()
	d.fail(-1)
	if m := d.records(t)["d^v"].Mounts["a"]; m.Phase != state.Entering {
		t.Fatalf("the journal has %v of what the pod was told", m.Phase)
	}
	l = live(t, h, d, append(opts, sources("s"))...)
	l.up(h)
	p := podWant("a", "v")
	p.Volumes[0].Mount.ReadOnly = true
	l.SetPod(p)
	l.SourceSynced("s")
	return l
}

// The look at the start finds the mount: the pod, which may know of it, keeps it in its present
// form.
//
// Faults: A131.
func TestWhatTheFirstLookSawIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeNode(t)
		l := afterATold(t, h)
		rest()
		equal(t, "calls", h.calls(), []string{"Stage d^v", "Publish d^v a", "Stage d^v", "Publish d^v a"})
		if v, _ := l.Volume("d^v"); v.Volume.Mounts["a"].ReadOnly || v.Held.Reason == "" {
			t.Errorf("mount %+v, held %+v", v.Volume.Mounts["a"], v.Held)
		}
	})
}

// While the kernel cannot be asked, a mount that its pod may know of is not replaced by another
// form, and the status says why.
//
// Faults: A131.
func TestAMountThatTheFirstLookDidNotSeeIsNotTakenAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeNode(t)
		k := &blind{fakeNode: h}
		k.left.Store(1)
		l := afterATold(t, h, func(c *Config) { c.Kernel = k })
		synctest.Wait()
		if v, _ := l.Volume("d^v"); v.Held.Reason != reasonUnseen || v.Held.Pod != "a" {
			t.Errorf("held %+v", v.Held)
		}
		rest()
		if slices.Contains(h.calls(), "Unpublish d^v a") {
			t.Errorf("calls %v", h.calls())
		}
		if v, _ := l.Volume("d^v"); v.Volume.Mounts["a"].Phase != state.Present || v.Volume.Mounts["a"].ReadOnly {
			t.Errorf("once it was seen: %+v", v.Volume.Mounts["a"])
		}
	})
}
