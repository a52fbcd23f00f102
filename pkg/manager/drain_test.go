package manager

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

func TestADrainedNodeBeginsNothingNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d, sources("s"))
		l.up(h)
		l.SourceSynced("s")
		l.SetPod(podWant("old", "a"))
		mounted(t, l, "old")
		l.SetDrain(DrainHold)
		l.SetPod(podWant("new", "a", "b"))
		rest()
		equal(t, "calls", h.calls(), []string{"Stage d^a", "Publish d^a old"})
		p, _ := l.Pod("new")
		for _, v := range p.Volumes {
			if v.BlockedBy != reasonDrained {
				t.Errorf("volume %s is blocked by %q", v.ID, v.BlockedBy)
			}
		}
		l.RemovePod("old")
		gone(t, l, "old")
		l.SetDrain(0)
		mounted(t, l, "new")
	})
}

// The node's containers have stopped, but the source still lists its pods, or is silent, as at
// the end of a boot.
//
// Faults: A104.
func TestAnEmptiedNodeHasNothingLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d, sources("s", "silent"))
		l.up(h)
		l.SourceSynced("s")
		l.SetPod(podWant("p", "a", "b"))
		bad := podWant("q", "a")
		bad.Volumes = append(bad.Volumes, state.VolumeWant{Names: []string{"c"}, Problem: "cannot be looked up"})
		l.SetPod(bad)
		mounted(t, l, "p")
		rest()
		l.SetDrain(DrainEmpty)
		rest()
		if !h.clean() || len(d.records(t)) != 0 {
			t.Errorf("left: %v, records %v", h.calls(), d.records(t))
		}
		p, _ := l.Pod("p")
		for _, v := range p.Volumes {
			if v.Mounted || v.BlockedBy != reasonEmptied {
				t.Errorf("volume %s: mounted %v, blocked by %q", v.ID, v.Mounted, v.BlockedBy)
			}
		}
		l.SetPod(podWant("late", "a")) // waits as well
		rest()
		if !h.clean() {
			t.Error("something was made while the node is emptied")
		}
		l.SetDrain(0)
		mounted(t, l, "p")
		mounted(t, l, "late")
	})
}

// While the node is being emptied, nothing may be started on a mount that is still there: the pod is not
// ready, and a wait for it goes on and says why.
func TestNoPodIsReadyOnANodeThatIsEmptied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d, sources("s"))
		l.up(h)
		l.SourceSynced("s")
		l.SetPod(podWant("p", "a"))
		mounted(t, l, "p")
		l.DriverDown("d", "it is replaced")
		l.SetDrain(DrainEmpty)
		rest()
		if p, _ := l.Pod("p"); p.Ready || p.Volumes[0].Mounted || p.Volumes[0].Phase == state.Absent || p.Volumes[0].BlockedBy == "" {
			t.Errorf("while the volume cannot be unmounted: %+v", p)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.WaitForAttachAndMount(ctx, "p"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a wait for its mounts: %v", err)
		}
		l.SetDrain(0)
		l.up(h)
		mounted(t, l, "p")
	})
}

func TestEmptyingGoesOnAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("p", "a"))
		mounted(t, l, "p")
		if err := l.stop(); err != nil {
			t.Fatal(err)
		}
		l = live(t, h, d, sources("silent"))
		l.SetDrain(DrainEmpty) // before anything else is known
		l.up(h)
		rest()
		if !h.clean() || len(d.records(t)) != 0 {
			t.Errorf("left: %v, records %v", h.calls(), d.records(t))
		}
	})
}

func TestForgetDropsARecordAndMakesNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("p", "a"))
		mounted(t, l, "p")
		id := state.SharedID("d", "a")
		if err := l.Forget(t.Context(), id); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "1 pods want it") {
			t.Errorf("while it is wanted: %v", err)
		}
		if err := l.Forget(t.Context(), "d^other"); !errors.Is(err, ErrUnknownVolume) {
			t.Errorf("of none: %v", err)
		}
		l.DriverDown("d", "gone for ever")
		l.RemovePod("p")
		rest()
		before := len(h.calls())
		if err := l.Forget(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if len(d.records(t)) != 0 {
			t.Errorf("on disk: %v", d.records(t))
		}
		l.up(h)
		rest()
		if n := len(h.calls()); n != before {
			t.Errorf("calls %v", h.calls()[before:])
		}
		if _, there := l.Volume(id); there {
			t.Error("it is shown still")
		}
		l.SetPod(podWant("q", "a")) // and can be had again
		mounted(t, l, "q")
	})
}

// When a method returns, the snapshot shows its effect.
func TestAnswersComeOnceTheBoardShowsThem(t *testing.T) {
	id := state.SharedID("d", "a")
	gone := state.Volume{ID: id, Spec: new(wantOf("a", "a").Spec)}
	stuck := gone
	stuck.Needs.Stage, stuck.Stage = true, state.Fact{Phase: state.Leaving, Failed: &state.Retry{Attempts: 1}}
	for what, tc := range map[string]struct {
		v    state.Volume
		ask  func(context.Context, *Manager) error
		seen func(v VolumeStatus, known bool) bool // nil if nothing else changes
	}{
		"forget": {
			v: gone, ask: func(ctx context.Context, m *Manager) error { return m.Forget(ctx, id) },
			seen: func(_ VolumeStatus, known bool) bool { return !known },
		},
		"unmount by a step": {
			v: stuck, ask: func(ctx context.Context, m *Manager) error { return m.UnmountBy(ctx, id, state.UnmountLazy) },
		},
		"verify": {
			v: gone,
			ask: func(ctx context.Context, m *Manager) error {
				if err := m.Verify(ctx, "nobody"); err == nil {
					return errors.New("it passes")
				}
				return nil
			},
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, err := New(Config{Store: newDisk(), Kernel: newFakeNode(t), Unmount: func(context.Context, state.Volume, state.PodUID, state.UnmountStep) error { return nil }})
				if err != nil {
					t.Fatal(err)
				}
				l := newLoop(m, state.Loaded{Volumes: map[state.VolumeID]state.Volume{id: tc.v}})
				l.row(id).record = &tc.v
				l.changed.push(id)
				l.publish()
				returned := make(chan error, 1)
				go func() { returned <- tc.ask(t.Context(), m) }()
				synctest.Wait()
				l.takeEvents()
				synctest.Wait()
				if len(returned) != 0 {
					t.Fatal("it has returned before the snapshot shows it")
				}
				if tc.seen != nil && tc.seen(m.Volume(id)) {
					t.Fatal("the snapshot shows it already")
				}
				l.publish()
				l.sendReplies()
				synctest.Wait()
				if len(returned) != 1 {
					t.Fatal("it has not returned")
				}
				if err := <-returned; err != nil {
					t.Fatal(err)
				}
				if tc.seen != nil && !tc.seen(m.Volume(id)) {
					t.Error("it has returned, and the snapshot does not show it")
				}
			})
		})
	}
}

func TestForgetWaitsForNoCallInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("p", "a"))
		mounted(t, l, "p")
		h.fails(func(string) fault { return fault{hangs: true} })
		l.RemovePod("p")
		synctest.Wait()
		if err := l.Forget(t.Context(), state.SharedID("d", "a")); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "Unpublish for pod p has been in flight") {
			t.Errorf("got %v", err)
		}
	})
}

func TestForgetThatCannotBeWrittenForgetsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("p", "a"))
		mounted(t, l, "p")
		rest()
		l.DriverDown("d", "gone")
		l.RemovePod("p")
		rest()
		d.fail(0)
		id := state.SharedID("d", "a")
		if err := l.Forget(t.Context(), id); !errors.Is(err, errDisk) {
			t.Errorf("got %v", err)
		}
		d.fail(-1)
		l.up(h)
		rest()
		if !h.clean() {
			t.Errorf("it was forgotten all the same: %v", h.calls())
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = l.stop()
		if err := l.Forget(ctx, id); err == nil {
			t.Error("no error after the end")
		}
	})
}

// A volume whose record cannot be read is not touched until an operator says that it may be
// forgotten.
func TestForgetEndsAQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		id := state.SharedID("d", "a")
		q := &quarantine{disk: d, why: map[state.VolumeID]string{id: "checksum mismatch"}}
		l := live(t, h, d, func(c *Config) { c.Store = q })
		l.up(h)
		l.SetPod(podWant("p", "b"))
		mounted(t, l, "p")
		if v, _ := l.Volume(id); v.Quarantined == "" {
			t.Fatal("it is not in quarantine")
		}
		if err := l.Forget(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		rest()
		if v, there := l.Volume(id); there {
			t.Errorf("it is shown as %+v", v)
		}
		l.SetPod(podWant("q", "a"))
		mounted(t, l, "q")
	})
}

// quarantine is a disk with records that cannot be read.
type quarantine struct {
	*disk
	why map[state.VolumeID]string
}

func (q *quarantine) Load(ctx context.Context) (state.Loaded, error) {
	l, err := q.disk.Load(ctx)
	l.Quarantined = q.why
	return l, err
}
