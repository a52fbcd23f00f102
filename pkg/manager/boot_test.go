package manager

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// TestABootIDThatCannotBeStoredIsStoredLater: otherwise the next start would take this boot
// for another one, and repeat every call.
func TestABootIDThatCannotBeStoredIsStoredLater(t *testing.T) {
	for _, fails := range []string{"commit", "boot id"} {
		synctest.Test(t, func(t *testing.T) {
			h, d := newFakeNode(t), newDisk()
			l := live(t, h, d)
			l.up(h)
			l.SetPod(podWant("a", "v"))
			mounted(t, l, "a")
			rest()
			_ = l.stop()
			clear(h.published)
			clear(h.staged)
			store := &bootless{disk: d}
			if fails == "commit" {
				d.fail(0)
			} else {
				store.left = 3
			}
			l = live(t, h, d, boot("boot-2"), sources("s"), func(c *Config) { c.Store = store })
			l.up(h)
			l.SetPod(podWant("a", "v"))
			l.SourceSynced("s")
			time.Sleep(time.Minute)
			d.fail(-1)
			mounted(t, l, "a")
			rest()
			before := len(h.calls())
			l = live(t, h, d, boot("boot-2"), sources("s")) // as after SIGKILL
			l.up(h)
			l.SetPod(podWant("a", "v"))
			l.SourceSynced("s")
			rest()
			equal(t, fails+" failed: calls of the next life", h.calls()[before:], nil)
		})
	}
}

// bootless is a disk that fails to store the boot ID a few times.
type bootless struct {
	*disk
	left int
}

func (b *bootless) SetBootID(ctx context.Context, id string) error {
	if b.left > 0 {
		b.left--
		return errDisk
	}
	return b.disk.SetBootID(ctx, id)
}

// TestALookThatHangsAtTheStartIsTold: the status says so until the look times out (rule 10).
// Items: E17.
func TestALookThatHangsAtTheStartIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		h.fails(func(call string) fault { return fault{hangs: strings.HasPrefix(call, "Publish")} })
		l.SetPod(podWant("a", "v"))
		synctest.Wait()
		_ = l.stop()
		h.fails(nil)
		l = live(t, h, d, sources("s"), func(c *Config) { c.Kernel = hung{} })
		l.SetPod(podWant("a", "v"))
		synctest.Wait()
		if v, _ := l.Volume("d^v"); v.Held.Reason != reasonLook {
			t.Errorf("%+v", v)
		}
		if s, _ := l.Pod("a"); s.Ready || s.Volumes[0].BlockedBy != reasonLook {
			t.Errorf("%+v", s)
		}
	})
}

// TestALookThatFailsIsMadeAgain: a mount that vanished while the kernel could not be asked is
// made again.
func TestALookThatFailsIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		k := &blind{fakeNode: h}
		l := live(t, h, d, func(c *Config) { c.Kernel = k })
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		rest()
		k.left.Store(3)
		h.mu.Lock()
		delete(h.published, "/pods/a/v")
		h.mu.Unlock()
		before := len(h.calls())
		l.MountsSeen(oneLayer("/stage/v"))
		rest()
		equal(t, "calls", h.calls()[before:], []string{"Publish d^v a"})
	})
}

// blind is a kernel whose looks fail a few times.
type blind struct {
	*fakeNode
	left atomic.Int64
}

func (b *blind) Look(ctx context.Context, path string) (state.Seen, error) {
	if b.left.Add(-1) >= 0 {
		return state.Seen{}, errors.New("out of memory")
	}
	return b.fakeNode.Look(ctx, path)
}

// TestAWriteThatFailedIsReplaced: it may have become durable, and the next daemon must not
// find it: here it says that the pod's mount is leaving.
func TestAWriteThatFailedIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d, func(c *Config) { c.Store = unsure{d} })
		l.up(h)
		d.fail(0)
		l.SetPod(podWant("a", "v"))
		synctest.Wait()
		if len(d.records(t)) != 1 || len(h.calls()) != 0 {
			t.Errorf("records %v, calls %v", d.records(t), h.calls())
		}
		l.RemovePod("a")
		synctest.Wait()
		d.fail(-1)
		rest()
		if left := d.records(t); len(left) != 0 {
			t.Errorf("a volume that no call has begun has a record: %v", left)
		}
	})
}

// unsure is a disk whose write succeeds although it returns an error.
type unsure struct{ *disk }

func (u unsure) Commit(ctx context.Context, changes map[state.VolumeID]*state.Volume) error {
	if err := u.disk.Commit(ctx, changes); err != nil {
		return errors.Join(err, u.Memory.Commit(ctx, changes))
	}
	return nil
}

// TestAPodThatComesBackHoldsUpNobodyByItsFormerLife: not even by a stage that was begun for it.
func TestAPodThatComesBackHoldsUpNobodyByItsFormerLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		l.RemovePod("a")
		l.SetPod(podWant("a")) // another one, without volumes
		p := podWant("b", "v")
		p.Volumes[0].Spec.FSType = "other"
		l.SetPod(p)
		mounted(t, l, "b")
		if h.staged["/stage/v"] != "other!" {
			t.Errorf("staged %v", h.staged)
		}
	})
}

// TestWhatWasStagedForAPodGoesWithIt: even if the pod never had it mounted.
func TestWhatWasStagedForAPodGoesWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		h.fails(func(call string) fault {
			if strings.HasPrefix(call, "Publish") {
				return fault{err: errDisk}
			}
			return fault{takes: time.Second}
		})
		l.SetPod(podWant("a", "v"))
		synctest.Wait()
		l.SetPod(podWant("a")) // while it is being staged
		rest()
		if len(h.staged) != 1 {
			t.Error("unstaged while the pod is listed")
		}
		l.RemovePod("a")
		rest()
		if !h.clean() || len(d.records(t)) != 0 {
			t.Error("left")
		}
	})
}

// TestARemovalWhoseIntentMayBeDurableIsNotTurnedBackFrom: the next daemon would continue it.
func TestARemovalWhoseIntentMayBeDurableIsNotTurnedBackFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		rest()
		_ = l.stop()
		before := len(h.calls())
		l = live(t, h, d, sources("s"), func(c *Config) { c.Store = unsure{d} })
		l.up(h)
		rest()
		d.fail(0)
		l.SourceSynced("s")
		synctest.Wait()
		l.SetPod(podWant("a", "v"))
		synctest.Wait()
		if s, _ := l.Pod("a"); s.Ready {
			t.Error("the pod is said to have what the journal may say is leaving")
		}
		d.fail(-1)
		mounted(t, l, "a")
		equal(t, "calls", h.calls()[before:], []string{"Unpublish d^v a", "Unstage d^v", "Stage d^v", "Publish d^v a"})
	})
}

// TestASuspectThatWentIsNotLookedAt: the volume would count as busy for ever. One look is
// requested while the removal is in flight, another one is retried after it.
func TestASuspectThatWentIsNotLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		k := &blind{fakeNode: h}
		l := live(t, h, d, func(c *Config) { c.Kernel = k })
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		k.left.Store(2)
		l.MountsSeen(nil)
		synctest.Wait()
		h.fails(func(call string) fault { return fault{takes: time.Second} })
		l.RemovePod("a")
		synctest.Wait()
		l.MountsSeen(nil)
		rest()
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
	})
}

// hung is a kernel that never answers.
type hung struct{ storage }

func (hung) Look(ctx context.Context, _ string) (state.Seen, error) {
	<-ctx.Done()
	return state.Seen{}, ctx.Err()
}
