package manager

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// counting is a driver that counts its publications and refuses to unstage a volume that has
// any. It mounts in a mount namespace of its own until it is repaired.
type counting struct {
	*fakeNode
	publications int
}

func (c *counting) Publish(ctx context.Context, v state.Volume, pod state.PodUID) (time.Time, error) {
	c.publications++
	return c.fakeNode.Publish(ctx, v, pod)
}

func (c *counting) Unpublish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	c.publications = max(c.publications-1, 0)
	return c.fakeNode.Unpublish(ctx, v, pod)
}

func (c *counting) Unstage(ctx context.Context, v state.Volume) error {
	if c.publications > 0 {
		return fmt.Errorf("%d publications of %s are left", c.publications, v.ID)
	}
	return c.fakeNode.Unstage(ctx, v)
}

// TestWhatALyingOKMayHaveMadeIsUndone: as often as the driver answered OK, also after a restart
// of csi-volmgr, and whether or not the driver is repaired before.
//
// Faults: A160.
func TestWhatALyingOKMayHaveMadeIsUndone(t *testing.T) {
	for name, right := range map[string]bool{"the driver is put right": true, "the pod goes before": false} {
		synctest.Test(t, func(t *testing.T) {
			h, d := newFakeNode(t), newDisk()
			driver := &counting{fakeNode: h}
			h.fails(func(call string) fault { return fault{lie: strings.HasPrefix(call, "Publish")} })
			l := live(t, h, d)
			l.DriverUp(DriverInfo{Name: "d", Stage: true, MountsTarget: true}, driver)
			l.SetPod(podWant("a", "v"))
			time.Sleep(10 * time.Second)
			if err := l.stop(); err != nil {
				t.Fatal(err)
			}
			lies := driver.publications
			if m := d.records(t)["d^v"].Mounts["a"]; lies < 3 || m.NoEffect != lies {
				t.Fatalf("%s: the record counts %d calls without effect, made were %d", name, m.NoEffect, lies)
			}
			if right {
				h.fails(nil)
			}
			l = live(t, h, d, sources("s"))
			l.DriverUp(DriverInfo{Name: "d", Stage: true, MountsTarget: true}, driver)
			l.SetPod(podWant("a", "v"))
			l.SourceSynced("s")
			if right {
				mounted(t, l, "a")
			}
			l.RemovePod("a")
			rest()
			if !h.clean() || driver.publications != 0 || len(l.Volumes()) != 0 {
				t.Errorf("%s: %d publications are left, calls %v", name, driver.publications, h.calls())
			}
		})
	}
}

// strictOnce is a driver that answers Internal to an Unpublish of what does not exist.
type strictOnce struct{ *fakeNode }

func (s strictOnce) Unpublish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	if calls := s.calls(); len(calls) > 0 && strings.HasPrefix(calls[len(calls)-1], "Unpublish") {
		return &state.CallError{Outcome: state.Failed, Call: "NodeUnpublishVolume", Code: "Internal", Err: errors.New("no mount point")}
	}
	return s.fakeNode.Unpublish(ctx, v, pod)
}

// Faults: A160.
func TestADriverThatUnpublishesOnceIsAskedNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		h.fails(func(call string) fault { return fault{lie: strings.HasPrefix(call, "Publish")} })
		l := live(t, h, d)
		l.DriverUp(DriverInfo{Name: "d", Stage: true, MountsTarget: true}, strictOnce{h})
		l.SetPod(podWant("a", "v"))
		time.Sleep(10 * time.Second)
		l.RemovePod("a")
		rest()
		if !h.clean() || len(l.Volumes()) != 0 {
			t.Errorf("it is not gone after %v", h.calls())
		}
	})
}

// linking is a driver whose client finds a symbolic link where a mount should be.
type linking struct{ *counting }

func (l linking) Publish(ctx context.Context, v state.Volume, pod state.PodUID) (time.Time, error) {
	l.publications++
	err := errors.New("the driver left a symbolic link")
	return time.Time{}, &state.CallError{Outcome: state.Failed, Call: "NodePublishVolume", Reason: state.NoEffect, Err: err}
}

// What the driver's client finds counts as what the kernel shows: each such OK is undone, and events tell of it.
func TestALinkIsAnOKWithoutEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		driver := linking{&counting{fakeNode: h}}
		var last EndedCall
		l := live(t, h, d, func(c *Config) { c.OnCall = func(e EndedCall) { last = e } })
		l.DriverUp(DriverInfo{Name: "d", Stage: true, MountsTarget: true}, driver)
		l.SetPod(podWant("a", "v"))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if !last.NoEffect || !strings.Contains(last.Error, "answered OK without the effect: the driver left a symbolic link") {
			t.Errorf("%+v", last)
		}
		l.RemovePod("a")
		rest()
		if !h.clean() || driver.publications != 0 || len(l.Volumes()) != 0 {
			t.Errorf("%d publications are left, calls %v", driver.publications, h.calls())
		}
	})
}
