package manager

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

func TestAWaitAnswersForWhatWasToldBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		resume := stall(l)
		l.SetPod(podWant("a", "v", "w"))
		answered := make(chan error, 1)
		go func() { answered <- l.WaitForAttachAndMount(t.Context(), "a") }()
		synctest.Wait()
		select {
		case err := <-answered:
			t.Errorf("answered (%v) for what the pod wanted before", err)
			resume()
		default:
			resume()
			if err := <-answered; err != nil || len(l.GetMountedVolumesForPod("a")) != 2 {
				t.Errorf("%v, mounted: %v", err, l.GetMountedVolumesForPod("a"))
			}
		}
	})
}

func TestAWaitForUnmountKnowsOfACallThatIsAboutToBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.DriverUp(DriverInfo{Name: "d", MountsTarget: true}, h)
		resume := stall(l)
		l.SetPod(podWant("a", "v"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		h.fails(func(string) fault { return fault{takes: time.Minute} })
		answered := make(chan error, 1)
		go func() { answered <- l.WaitForUnmount(ctx, "a") }()
		synctest.Wait()
		resume()
		if err := <-answered; err == nil {
			t.Error("unmounted, while the pod's volume is being published")
		}
		rest()
	})
}

// TestAWaitThatIsOverAnswersFromWhatIsKnown: like the kubelet's, it checks once more when its
// time is over.
func TestAWaitThatIsOverAnswersFromWhatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("over"))
		if err := l.WaitForAttachAndMount(ctx, "a"); err != nil {
			t.Error(err)
		}
		err := l.WaitForUnmount(ctx, "a")
		if we := (*WaitError)(nil); !errors.As(err, &we) || len(we.Volumes) != 1 || we.Cause.Error() != "over" {
			t.Errorf("%v", err)
		}
	})
}

func TestWaitsLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for range 2 {
			go func() { _ = l.WaitForAttachAndMount(ctx, "nobody") }()
		}
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		mounted(t, l, "a")
		l.RemovePod("a")
		gone(t, l, "a")
		gone(t, l, "a")
		rest()
		l.snapshot.mu.RLock()
		defer l.snapshot.mu.RUnlock()
		if b := l.snapshot; len(b.podChanged) != 0 || len(b.byPod) != 0 || len(b.pods) != 0 || len(b.volumes) != 0 {
			t.Errorf("left: watched %v, by pod %v, pods %v, volumes %v", text(b.podChanged), b.byPod, b.pods, b.volumes)
		}
	})
}

func TestAWaitEndsWithTheManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		answered := make(chan error, 1)
		go func() { answered <- l.WaitForUnmount(t.Context(), "a") }()
		synctest.Wait()
		_ = l.stop()
		if err := <-answered; !errors.Is(err, ErrEnded) {
			t.Errorf("%v", err)
		}
		if err := l.WaitForAttachAndMount(t.Context(), "a"); err != nil {
			t.Errorf("what is mounted when the manager ends stays so: %v", err)
		}
		l.SetPod(podWant("b", "v"))
		if err := l.WaitForAttachAndMount(t.Context(), "b"); !errors.Is(err, ErrEnded) {
			t.Errorf("%v", err)
		}
	})
}

func TestNothingIsSaidToBeGoneBeforeTheJournalWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		_ = l.stop()
		m, err := New(Config{Store: d, Kernel: h, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := m.WaitForUnmount(ctx, "a"); err == nil {
			t.Error("unmounted, by a manager that does not run yet")
		}
		if m.ReconcilerStatesHasBeenSynced() {
			t.Error("synced before Run")
		}
	})
}
