package manager

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// foreign is a house in which somebody else has mounted what is staged.
type foreign struct {
	*house
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

// A volume that somebody has mounted elsewhere is not unstaged, stays in use, and
// says where; its pod is not kept for that. Once it is unmounted there it goes.
//
// Items: C34.
func TestAVolumeThatIsMountedElsewhereIsNotUnstaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newHouse(t), newDisk()
		k := &foreign{house: h}
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
