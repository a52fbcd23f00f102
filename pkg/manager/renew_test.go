package manager

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// renews is a fakeNode whose mounts expire after a while.
type renews struct {
	*fakeNode
	ends time.Duration
}

func (r renews) Publish(ctx context.Context, v state.Volume, pod state.PodUID) (time.Time, error) {
	if _, err := r.fakeNode.Publish(ctx, v, pod); err != nil {
		return time.Time{}, err
	}
	return time.Now().Add(r.ends), nil
}

// TestATokenIsRenewedAndNothingElseIsDone: the volume is published again at the same target
// each time its token expires, also after a restart, which itself makes no call. A failure is
// retried and removes nothing.
//
// Items: F07, F10, C28, N-72.
// Scenarios: U-22.
func TestATokenIsRenewedAndNothingElseIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		up := func(l *life) {
			l.DriverUp(DriverInfo{Name: "d", Stage: true, MountsTarget: true}, renews{h, 40 * time.Minute})
		}
		l := live(t, h, d)
		up(l)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		time.Sleep(39 * time.Minute)
		equal(t, "calls before it ends", h.calls(), []string{"Stage d^v", "Publish d^v a"})
		time.Sleep(2 * time.Minute)
		equal(t, "calls after", h.calls()[2:], []string{"Publish d^v a"})
		_ = l.stop()
		l = live(t, h, d, sources("s"))
		up(l)
		l.SetPod(podWant("a", "v"))
		l.SourceSynced("s")
		mounted(t, l, "a")
		time.Sleep(30 * time.Minute)
		equal(t, "calls after a restart", h.calls()[3:], nil)
		h.fails(func(string) fault { return fault{err: errors.New("no token")} })
		time.Sleep(20 * time.Minute)
		if s, _ := l.Pod("a"); !s.Ready || s.Volumes[0].Phase != state.Present {
			t.Errorf("while renewals fail: %+v", s)
		}
		h.fails(nil)
		rest()
		failed := len(h.calls())
		for _, call := range h.calls()[2:] {
			if call != "Publish d^v a" {
				t.Errorf("%s was called", call)
			}
		}
		l.RemovePod("a")
		gone(t, l, "a")
		rest()
		equal(t, "calls in the end", h.calls()[failed:], []string{"Unpublish d^v a", "Unstage d^v"})
		if !h.clean() {
			t.Error("something is left")
		}
	})
}

// TestARenewalThatWaitsForItsDriverIsInThePodsStatus: from the moment when the driver goes down,
// not only when the renewal is due, and the pod stays ready.
func TestARenewalThatWaitsForItsDriverIsInThePodsStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		up := func() {
			l.DriverUp(DriverInfo{Name: "d", Stage: true, MountsTarget: true}, renews{h, 40 * time.Minute})
		}
		up()
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		l.DriverDown("d", "it died")
		synctest.Wait()
		s, _ := l.Pod("a")
		if v := s.Volumes[0]; !s.Ready || !v.Mounted || v.Step != plan.Republish || v.BlockedBy != "driver d is not registered: it died" {
			t.Errorf("while the driver is away: %+v", s)
		}
		up()
		synctest.Wait()
		if s, _ = l.Pod("a"); !s.Ready || s.Volumes[0].Step != plan.None || s.Volumes[0].BlockedBy != "" {
			t.Errorf("with the driver back: %+v", s)
		}
	})
}
