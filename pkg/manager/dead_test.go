package manager

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// fuse is a driver whose stage is served by a process. If that is dead, it answers OK to Stage
// and Publish, and the new mount is dead too.
type fuse struct {
	*fakeNode
	mu     sync.Mutex
	dead   bool
	dies   bool // as soon as it is mounted
	staged bool
}

func (f *fuse) Stage(ctx context.Context, v state.Volume) error {
	err := f.fakeNode.Stage(ctx, v)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && !f.staged {
		f.staged, f.dead = true, f.dies
	}
	return err
}

func (f *fuse) Unstage(ctx context.Context, v state.Volume) error {
	err := f.fakeNode.Unstage(ctx, v)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.staged, f.dead = err != nil, f.dead && err != nil
	return err
}

func (f *fuse) die() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead = true
}

func (f *fuse) isDead(_ context.Context, _ state.Volume, path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead && strings.HasPrefix(path, "/stage/") {
		return errors.New("transport endpoint is not connected")
	}
	return nil
}

func fuseLife(t *testing.T, h *fakeNode) (*life, *fuse) {
	t.Helper()
	f := &fuse{fakeNode: h}
	l := live(t, h, newDisk(), func(c *Config) { c.Dead = f.isDead })
	l.DriverUp(DriverInfo{Name: "d", Stage: true, MountsTarget: true}, f)
	return l, f
}

// A new pod does not get a dead mount: the volume is mounted again first, as soon as no other
// pod has it.
//
// Faults: A163.
func TestADeadMountIsMadeAnewBeforeAPodGetsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeNode(t)
		l, f := fuseLife(t, h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		f.die()
		l.SetPod(podWant("b", "v"))
		rest()
		v, _ := l.Volume("d^v")
		if b := v.Volume.Mounts["b"]; b.Phase != state.Absent || !v.Held.Dead || v.Held.Pod != "b" {
			t.Errorf("while a has it, b's mount is %v, held %+v", b.Phase, v.Held)
		}
		if a := v.Volume.Mounts["a"]; a.Phase != state.Present {
			t.Errorf("a's mount is %v", a.Phase)
		}
		if n := strings.Count(strings.Join(h.calls(), ","), "Publish"); n != 1 {
			t.Errorf("the dead mount was published: %v", h.calls())
		}
		l.RemovePod("a")
		mounted(t, l, "b")
		if f.dead {
			t.Error("b has what is dead")
		}
		l.RemovePod("b")
		rest()
		if !h.clean() {
			t.Errorf("left after %v", h.calls())
		}
	})
}

// If no pod has the volume, it is mounted again at once, even if the stage itself was made over
// a dead mount, and also after a restart.
//
// Faults: A163.
func TestADeadStageWithoutPodsIsMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeNode(t)
		l, f := fuseLife(t, h)
		h.fails(func(call string) fault {
			if strings.HasPrefix(call, "Publish") {
				return fault{err: errors.New("not yet")}
			}
			return fault{}
		})
		l.SetPod(podWant("a", "v"))
		time.Sleep(time.Minute)
		f.die()
		h.fails(nil)
		mounted(t, l, "a")
		if f.dead || !slices.Contains(h.calls(), "Unstage d^v") {
			t.Errorf("dead %v after %v", f.dead, h.calls())
		}
	})
}

// A server that ends as soon as it is started is restarted with a pause.
//
// Faults: A163.
func TestAServerThatEndsAtOnceIsBegunWithPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeNode(t)
		l, f := fuseLife(t, h)
		f.dies = true
		l.SetPod(podWant("a", "v"))
		rest()
		most := int(time.Hour/(2*time.Minute)) + 12
		if n := h.took["Stage"]; n < 5 || n > most {
			t.Errorf("staged %d times in an hour, at most %d are right", n, most)
		}
		f.dies = false
		l.RetryNow("d^v")
		mounted(t, l, "a")
		if v, _ := l.Volume("d^v"); v.Held != (plan.Held{}) {
			t.Errorf("held %+v", v.Held)
		}
	})
}
