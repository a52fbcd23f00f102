package manager

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

func TestACallEndsAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		h.fails(func(string) fault { return fault{hangs: true} })
		l := live(t, h, d)
		l.up(h)
		at := time.Now()
		l.SetPod(podWant("a", "v"))
		time.Sleep(callDeadline + 100*time.Millisecond)
		if s, _ := l.Pod("a"); s.Volumes[0].Retry.Since.Sub(at) != callDeadline {
			t.Errorf("%+v", s.Volumes[0].Retry)
		}
	})
}

// Each of these changes of a wish may cure a final failure, and ends the wait.
//
// Faults: A048.
func TestAChangeOfTheWishEndsThePause(t *testing.T) {
	for name, change := range map[string]func(*state.VolumeWant){
		"revision": func(w *state.VolumeWant) { w.Revision = "2" },
		"hold":     func(w *state.VolumeWant) { w.Hold = "" },
		"size":     func(w *state.VolumeWant) { w.SizeBytes = 9 },
		"mount":    func(w *state.VolumeWant) { w.Mount.ReadOnly = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, d := newFakeNode(t), newDisk()
				h.fails(func(string) fault {
					return fault{err: &state.CallError{Outcome: state.Final, Call: "NodeStageVolume", Code: "Unimplemented", Err: errors.New("no")}}
				})
				l := live(t, h, d)
				l.up(h)
				l.SetPod(podWant("a", "v"))
				rest()
				if name == "hold" {
					p := podWant("a", "v")
					p.Volumes[0].Hold = "wait"
					l.SetPod(p)
					rest()
				}
				before := len(h.calls())
				l.SetPod(podWant("a", "v"))
				if name != "hold" {
					rest()
					equal(t, "calls for the same wish", h.calls()[before:], nil)
				}
				p := podWant("a", "v")
				change(&p.Volumes[0])
				l.SetPod(p)
				rest()
				equal(t, "calls for another", h.calls()[before:], []string{"Stage d^v"})
			})
		})
	}
}

func TestARestartEndsEveryPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		h.fails(func(string) fault {
			return fault{err: &state.CallError{Outcome: state.Final, Call: "NodeStageVolume", Code: "Unimplemented", Err: errors.New("no")}}
		})
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("a", "v"))
		rest()
		_ = l.stop()
		h.fails(nil)
		l = live(t, h, d, sources("s"))
		l.SetPod(podWant("a", "v"))
		l.SourceSynced("s")
		synctest.Wait()
		if v, _ := l.Volume("d^v"); v.Volume.Stage.Retry().Final || v.Volume.Stage.Retry().Error == "" {
			t.Errorf("%+v", v.Volume.Stage.Retry())
		}
		l.up(h)
		mounted(t, l, "a")
	})
}

// A volume that no controller attaches is not in the Node's status, so nothing waits for that.
//
// Items: A03.
func TestTheInUseHandshakeIsForAttachedVolumesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d, func(c *Config) { c.InUseHandshake = true })
		l.up(h)
		p := podWant("a", "inline", "built", "unattached")
		p.Volumes[0].Spec.Ephemeral, p.Volumes[1].Spec.Builtin, p.Volumes[2].Spec.NoAttach = true, true, true
		l.SetPod(p)
		mounted(t, l, "a")
		equal(t, "in use", l.GetVolumesInUse(), []state.VolumeID{"d^unattached"})
	})
}

func TestNobodyAttachesWithoutAnAttacher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d, func(c *Config) { c.Attacher = nil })
		l.DriverUp(DriverInfo{Name: "d", Attach: true, MountsTarget: true}, h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		equal(t, "calls", h.calls(), []string{"Publish d^v a"})
	})
}

// Items: E08.
// Faults: A003.
func TestAQuarantinedRecordIsInUseWhoeverWantsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d, func(c *Config) { c.Store = quarantining{journal.NewMemory()} })
		rest()
		equal(t, "in use", l.GetVolumesInUse(), []state.VolumeID{"d^v"})
		equal(t, "perhaps attached", inUse(l), []state.InUse{{ID: "d^v", Name: "kubernetes.io/csi/d^v"}})
	})
}

// slow is a kernel that answers only after its channel is closed.
type slow struct {
	*fakeNode
	answer chan struct{}
}

func (s slow) Look(ctx context.Context, path string) (state.Seen, error) {
	select {
	case <-s.answer:
		return s.fakeNode.Look(ctx, path)
	case <-ctx.Done():
		return state.Seen{}, ctx.Err()
	}
}

func TestNothingIsSyncedBeforeEveryRecordWasLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		_ = l.stop()
		before := len(h.calls())
		k := slow{h, make(chan struct{})}
		l = live(t, h, d, sources("s"), func(c *Config) { c.Kernel = k })
		l.up(h)
		l.SourceSynced("s")
		synctest.Wait()
		if l.ReconcilerStatesHasBeenSynced() || len(h.calls()) != before {
			t.Error("synced, or a call is made, before the look has ended")
		}
		close(k.answer)
		synctest.Wait()
		if !l.ReconcilerStatesHasBeenSynced() {
			t.Error("not synced after it")
		}
		rest()
	})
}

// TestAWriteForAnotherVolumeDoesNotUncoverACall: a record that the same write includes must
// still cover the call that begins at this moment.
func TestAWriteForAnotherVolumeDoesNotUncoverACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		h.fails(func(call string) fault {
			switch call {
			case "Stage d^v":
				return fault{takes: 2 * time.Second}
			case "Publish d^v a":
				if d.records(t)["d^v"].Mounts["a"].Phase != state.Entering {
					t.Error("the loop makes a call whose intent is not in the journal")
				}
			}
			return fault{}
		})
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("a", "v"))
		synctest.Wait()
		time.Sleep(time.Second)
		resume := stall(l)
		l.SetPod(podWant("b", "w"))
		time.Sleep(2 * time.Second) // the stage call ends
		resume()
		mounted(t, l, "a")
		rest()
	})
}

func TestTheLatestWordAboutAVolumeHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		for i, pod := range []string{"c", "a", "b", "d"} {
			p := podWant(pod, "v")
			p.Volumes[0].Spec.FSType = fmt.Sprint("fs", i)
			l.SetPod(p)
		}
		l.up(h)
		for _, pod := range []string{"a", "b", "c", "d"} {
			mounted(t, l, pod)
		}
		if h.staged["/stage/v"] != "fs3!" {
			t.Errorf("staged as %s, want as the last pod says", h.staged["/stage/v"])
		}
	})
}
