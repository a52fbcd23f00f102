package manager

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// one allows one call at a time that makes a volume.
func one(c *Config) { c.Limits = plan.Limits{Node: 2, Driver: 2, Reserved: 1} }

func TestASlotIsNotLostToAVolumeThatNeedsItNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		h.fails(func(call string) fault {
			if call == "Publish d^v0 p0" {
				return fault{takes: time.Second}
			}
			return fault{}
		})
		l := live(t, h, d, one)
		l.up(h)
		l.SetPod(podWant("p0", "v0"))
		synctest.Wait()
		l.SetPod(podWant("p1", "v1"))
		l.SetPod(podWant("p2", "v2"))
		synctest.Wait()
		l.RemovePod("p1") // it waits for the slot, first of all
		mounted(t, l, "p2")
	})
}

func TestASlotIsNotLostToACallThatTheJournalForbade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d, one)
		l.up(h)
		synctest.Wait()
		d.fail(0)
		l.SetPod(podWant("p0", "v0"))
		l.SetPod(podWant("p1", "v1"))
		synctest.Wait()
		l.RemovePod("p0") // nothing will make it try again
		d.fail(-1)
		mounted(t, l, "p1")
	})
}

// TestWhatMayCureAFailureCountsDuringTheCallToo: that a driver came back, or an operator asked
// for a retry, must not be forgotten because an older call is still running.
func TestWhatMayCureAFailureCountsDuringTheCallToo(t *testing.T) {
	for name, cure := range map[string]func(*life, *fakeNode){
		"the driver came back": func(l *life, h *fakeNode) { l.up(h) },
		"a person asked":       func(l *life, h *fakeNode) { l.RetryNow("d^v") },
		"the wish changed": func(l *life, _ *fakeNode) {
			p := podWant("a", "v")
			p.Volumes[0].SizeBytes = 7
			l.SetPod(p)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, d := newFakeNode(t), newDisk()
				first := true
				h.fails(func(string) fault {
					if !first {
						return fault{}
					}
					first = false
					return fault{takes: time.Minute, err: &state.CallError{Outcome: state.Final, Call: "NodeStageVolume", Code: "Unimplemented", Err: errors.New("old")}}
				})
				l := live(t, h, d)
				l.up(h)
				l.SetPod(podWant("a", "v"))
				synctest.Wait()
				cure(l, h)
				mounted(t, l, "a")
			})
		})
	}
}

func TestWhoHearsThatAVolumeIsGoneSeesItGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		var m *Manager
		heard := 0
		l := live(t, h, d, func(c *Config) {
			c.OnGone = func(id state.VolumeID) {
				heard++
				if v, known := m.Volume(id); known {
					t.Errorf("%s is said to be gone and shown as %+v", id, v)
				}
			}
		})
		m = l.Manager
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		l.RemovePod("a")
		rest()
		if heard != 1 {
			t.Errorf("told %d times, want once", heard)
		}
	})
}

// TestAMountThatVanishesDuringACallIsMended: the call itself looks at another path.
func TestAMountThatVanishesDuringACallIsMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("a", "v"))
		l.SetPod(podWant("b", "v"))
		mounted(t, l, "a")
		mounted(t, l, "b")
		h.fails(func(call string) fault {
			if strings.HasPrefix(call, "Expand") {
				return fault{takes: time.Minute}
			}
			return fault{}
		})
		p := podWant("a", "v")
		p.Volumes[0].SizeBytes = 5
		l.SetPod(p)
		synctest.Wait()
		h.mu.Lock()
		delete(h.published, "/pods/b/v")
		h.mu.Unlock()
		l.MountsSeen(oneLayer("/stage/v", "/pods/a/v"))
		rest()
		if h.published["/pods/b/v"] == "" {
			t.Error("a mount that vanished while a call was in flight is not noticed")
		}
	})
}

// uncertain is a disk whose write succeeds although it returns an error.
type uncertain struct {
	*disk
	broken atomic.Bool
}

func (u *uncertain) Commit(ctx context.Context, changes map[state.VolumeID]*state.Volume) error {
	err := u.disk.Commit(ctx, changes)
	if u.broken.Load() {
		return errDisk
	}
	return err
}

// TestAWriteThatFailedProvesNothing: it may have become durable nevertheless.
func TestAWriteThatFailedProvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		u := &uncertain{disk: d}
		l := live(t, h, d, func(c *Config) { c.Store = u })
		h.fails(func(call string) fault {
			switch call {
			case "Publish d^v a":
				return fault{takes: time.Second}
			case "Publish d^v b":
				if d.records(t)["d^v"].Mounts["b"].Phase != state.Entering {
					t.Error("the loop makes a call whose intent is not in the journal")
				}
			}
			return fault{}
		})
		l.SetPod(podWant("a", "v"))
		l.SetPod(podWant("b", "v"))
		synctest.Wait()
		l.up(h) // one write says that both enter
		synctest.Wait()
		l.RemovePod("b")
		u.broken.Store(true)
		rest() // what is known is written, so to speak: b has nothing
		l.SetPod(podWant("b", "v"))
		time.Sleep(5 * time.Second)
		u.broken.Store(false)
		mounted(t, l, "b")
	})
}

func TestADriverThatNobodyNamesAnyMoreIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.SetPod(podWant("a", "v"))
		l.DriverDown("sick", "it does not answer")
		synctest.Wait()
		if ds := l.Drivers(); len(ds) != 2 || ds[0].Volumes != 1 {
			t.Errorf("%+v", ds)
		}
		l.RemovePod("a")
		synctest.Wait()
		if ds := l.Drivers(); len(ds) != 1 || ds[0].Name != "sick" {
			t.Errorf("a misspelt driver's name stays for ever: %+v", ds)
		}
		l.SetPod(podWant("a", "v"))
		l.up(h)
		mounted(t, l, "a")
	})
}
