package manager

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
)

// foreign is a fakeNode in which another process has also mounted the stage.
type foreign struct {
	*fakeNode
	mu     sync.Mutex
	places []string
	err    error
}

func (f *foreign) Elsewhere(context.Context, string) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.places, f.err
}

func (f *foreign) set(err error, places ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.places, f.err = places, err
}

// A volume that a user has mounted elsewhere is not unstaged and stays in use, and its status
// says where. Its pod is unmounted. Once the user has unmounted it, it is unstaged.
//
// Items: C34.
func TestAVolumeThatIsMountedElsewhereIsNotUnstaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		k := &foreign{fakeNode: h}
		l := live(t, h, d, func(c *Config) { c.Kernel = k })
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		k.set(nil, "/backup/one", "/backup/two")
		l.RemovePod("a")
		gone(t, l, "a")
		rest()
		v, _ := l.Volume("d^v")
		if r := v.Volume.Stage.Retry(); h.took["Unstage"] != 0 || len(l.GetVolumesInUse()) != 1 || !strings.Contains(r.Error, "/backup/one, /backup/two") || r.Call != "NodeUnstageVolume" {
			t.Errorf("%d calls, in use %v, %+v", h.took["Unstage"], l.GetVolumesInUse(), r)
		}
		k.set(errors.New("the table cannot be read"))
		rest()
		if h.took["Unstage"] != 0 {
			t.Error("unstaged although nothing is known")
		}
		k.set(nil)
		rest()
		if h.took["Unstage"] != 1 || !h.clean() || len(d.records(t)) != 0 {
			t.Errorf("%d calls, left %v", h.took["Unstage"], d.records(t))
		}
	})
}

// searching is a fakeNode whose kernel finds mounts slowly.
type searching struct {
	*fakeNode
	takes time.Duration // guarded by fakeNode.mu
}

func (s *searching) Elsewhere(ctx context.Context, _ string) ([]string, error) {
	s.mu.Lock()
	takes := s.takes
	s.mu.Unlock()
	select {
	case <-time.After(takes):
		return nil, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// The look before an Unstage has a deadline of its own, and the driver keeps its full time.
func TestALookBeforeAnUnstageHasItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		k := &searching{fakeNode: h, takes: time.Hour}
		l := live(t, h, d, func(c *Config) { c.Kernel = k })
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		l.RemovePod("a")
		gone(t, l, "a")
		time.Sleep(lookDeadline + time.Millisecond)
		v, _ := l.Volume("d^v")
		if r := v.Volume.Stage.Retry(); h.took["Unstage"] != 0 || !strings.Contains(r.Error, errNoLook.Error()) {
			t.Errorf("%d calls, %+v", h.took["Unstage"], r)
		}
		h.fails(func(string) fault { return fault{hangs: h.took["Unstage"] == 1} })
		h.mu.Lock()
		k.takes = lookDeadline / 2
		h.mu.Unlock()
		for called := false; !called; {
			time.Sleep(time.Millisecond)
			h.mu.Lock()
			called = h.took["Unstage"] == 1
			h.mu.Unlock()
		}
		time.Sleep(callDeadline - time.Second)
		if v, _ := l.Volume("d^v"); v.Call.Kind != plan.Unstage {
			t.Errorf("the driver's time is over: %+v", v.Volume.Stage.Retry())
		}
		rest()
		if h.took["Unstage"] != 2 || !h.clean() {
			t.Errorf("%d calls, what is left: %v", h.took["Unstage"], d.records(t))
		}
	})
}
