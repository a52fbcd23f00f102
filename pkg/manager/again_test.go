package manager

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// TestAPodThatComesBackGetsNothingOfItsFormerLife: a pod was removed, which says
// that its containers have ended, and is listed again before anything was done
// about it: by its name it has the UID that it had.
// Items: C17.
func TestAPodThatComesBackGetsNothingOfItsFormerLife(t *testing.T) {
	end := func(l *life) { l.RemovePod("a") }
	stopped := func(l *life) {
		p := podWant("a", "v")
		p.Stopped = true
		l.SetPod(p)
	}
	for name, ends := range map[string]func(*life){"removed": end, "its containers have ended": stopped} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, d := newHouse(t), newDisk()
				l := live(t, h, d)
				l.up(h)
				l.SetPod(podWant("a", "v"))
				mounted(t, l, "a")
				before := len(h.calls())
				l.DriverDown("d", "for a while") // so that nothing can be done yet
				ends(l)
				rest()
				again := podWant("a", "v")
				again.Volumes[0].Mount.ReadOnly = true
				l.SetPod(again)
				synctest.Wait()
				if s, _ := l.Pod("a"); s.Ready || s.Volumes[0].Phase != state.Leaving {
					t.Errorf("the new pod has what the old one had: %+v", s)
				}
				_ = l.stop() // it is durable, too
				l = live(t, h, d)
				l.SetPod(again)
				l.up(h)
				mounted(t, l, "a")
				equal(t, "calls", h.calls()[before:], []string{"Unpublish d^v a", "Publish d^v a"})
				if m := l.GetMountedVolumesForPod("a"); !m["v"].ReadOnly {
					t.Errorf("%+v", m)
				}
			})
		})
	}
}

// TestAPodRemovedBeforeTheSourcesHaveSpokenKeepsItsMounts: another source may list it yet.
func TestAPodRemovedBeforeTheSourcesHaveSpokenKeepsItsMounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		_ = l.stop()
		before := len(h.calls())
		l = live(t, h, d, sources("file", "api"))
		l.up(h)
		l.SetPod(podWant("a", "v"))
		l.RemovePod("a")
		rest()
		l.SetPod(podWant("a", "v"))
		l.SourceSynced("file")
		l.SourceSynced("api")
		mounted(t, l, "a")
		rest()
		equal(t, "calls", h.calls()[before:], nil)
	})
}

// TestWhatIsMountedIsNeverLeavingInTheJournal: a removal's write already says
// that what follows leaves too; a pod that comes back meanwhile must not be told
// that it has what a restart would take away from it.
func TestWhatIsMountedIsNeverLeavingInTheJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("a", "v"))
		l.SetPod(podWant("b", "v"))
		mounted(t, l, "a")
		mounted(t, l, "b")
		_ = l.stop()
		l = live(t, h, d, sources("s"))
		l.up(h)
		h.fails(func(call string) fault {
			if call == "Unpublish d^v a" {
				return fault{takes: time.Minute}
			}
			return fault{}
		})
		l.SourceSynced("s") // both are gone since
		synctest.Wait()
		l.SetPod(podWant("b", "v"))
		synctest.Wait()
		if s, _ := l.Pod("b"); s.Ready && d.records(t)["d^v"].Mounts["b"].Phase == state.Leaving {
			t.Error("a crash now would unmount what a pod was told to be mounted")
		}
		rest()
		mounted(t, l, "b")
	})
}
