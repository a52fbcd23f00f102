package manager

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// lose removes a mount without the manager's knowledge.
func (h *fakeNode) lose(path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.staged, path)
	delete(h.published, path)
}

// A driver would bind an empty directory if the stage has vanished. The manager notices that
// before the call, and the volume is staged first.
//
// Items: N-71.
// Faults: A017.
func TestAPublishLooksWhetherTheVolumeIsStagedStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		before := len(h.calls())
		h.lose("/stage/v")
		l.SetPod(podWant("b", "v"))
		began := time.Now()
		mounted(t, l, "b")
		equal(t, "calls", h.calls()[before:], []string{"Stage d^v", "Publish d^v b"})
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v: no pause is due, for what failed is cured", took)
		}
	})
}

// stuck is a kernel that does not answer while something hangs.
type stuck struct {
	*fakeNode
	hangs atomic.Bool
}

func (s *stuck) Look(ctx context.Context, path string) (state.Seen, error) {
	if s.hangs.Load() {
		<-ctx.Done()
		return state.Seen{}, ctx.Err()
	}
	return s.fakeNode.Look(ctx, path)
}

// If a pod leaves while the look before its Publish hangs, Publish is not called. Neither the pod
// nor the daemon waits for the look.
func TestWhoLeavesBeforeItsPublishIsMadeGetsNone(t *testing.T) {
	for name, leave := range map[string]func(*life){
		"pod":    func(l *life) { l.RemovePod("b") },
		"daemon": func(l *life) { _ = l.stop() },
	} {
		synctest.Test(t, func(t *testing.T) {
			h, d := newFakeNode(t), newDisk()
			k := &stuck{fakeNode: h}
			l := live(t, h, d, func(c *Config) { c.Kernel = k })
			l.up(h)
			l.SetPod(podWant("a", "v"))
			mounted(t, l, "a")
			before := len(h.calls())
			k.hangs.Store(true)
			l.SetPod(podWant("b", "v"))
			synctest.Wait()
			began := time.Now()
			leave(l)
			synctest.Wait()
			if slices.Contains(h.calls()[before:], "Publish d^v b") {
				t.Errorf("%s: %v", name, h.calls()[before:])
			}
			if m := d.records(t)["d^v"].Mounts["b"]; m.Retry().Attempts != 0 {
				t.Errorf("%s: what was not made has failed %d times", name, m.Retry().Attempts)
			}
			if v, _ := l.Volume("d^v"); name == "pod" && v.Call.Kind == plan.Publish {
				t.Errorf("%v after it left its call is on still", time.Since(began))
			}
			k.hangs.Store(false)
		})
	}
}

// Verify asks the kernel now: it reports a vanished mount, which is made again, and no mount
// that is in order.
//
// Faults: A016.
func TestVerifySaysWhatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		l.up(h)
		if err := l.Verify(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "no source lists") {
			t.Errorf("an unknown pod: %v", err)
		}
		l.SetPod(podWant("a", "v", "w"))
		mounted(t, l, "a")
		calls := len(h.calls())
		for range 3 {
			if err := l.Verify(t.Context(), "a"); err != nil {
				t.Errorf("nothing is wrong: %v", err)
			}
		}
		equal(t, "calls", h.calls()[calls:], nil)
		h.lose("/pods/a/v")
		err := l.Verify(t.Context(), "a")
		e, ok := errors.AsType[*VerifyError](err)
		if !ok || len(e.Problems) != 1 || !strings.Contains(e.Problems["d^v"], "no longer mounted") {
			t.Errorf("a mount is gone: %v", err)
		}
		mounted(t, l, "a")
		if err := l.Verify(t.Context(), "a"); err != nil {
			t.Errorf("it is made again: %v", err)
		}
		equal(t, "calls", h.calls()[calls:], []string{"Publish d^v a"})
		h.fails(func(string) fault { return fault{hangs: true} })
		l.RemovePod("a")
		synctest.Wait()
		if err := l.Verify(t.Context(), "a"); err == nil {
			t.Error("a pod that was removed is verified")
		}
		over, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("enough"))
		if err := l.Verify(over, "a"); err == nil {
			t.Error("without time it is verified")
		}
		h.fails(nil)
	})
}

// Drift of an existing mount is reported, makes no call, and ends when the mount is restored.
//
// Faults: A101.
func TestMountsThatDifferAreToldAndLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		k := covers{h, map[string]state.Seen{}}
		l := live(t, h, d, func(c *Config) { c.Kernel = k })
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		calls := len(h.calls())
		fine := map[string]state.Seen{"/stage/v": {Mounted: true, Layers: 1}, "/pods/a/v": {Mounted: true, Layers: 1}}
		for name, seen := range map[string]state.Seen{
			"mounted over": {Exists: true, Mounted: true, Dev: 8, Layers: 2},
			"read-only":    {Exists: true, Mounted: true, Dev: 7, Layers: 1, ReadOnly: true},
		} {
			k.set("/pods/a/v", seen)
			l.MountsSeen(map[string]state.Seen{"/stage/v": {Mounted: true, Layers: 1}, "/pods/a/v": seen})
			synctest.Wait()
			if s, _ := l.Pod("a"); !s.Ready || !strings.Contains(s.Volumes[0].Drift, name) {
				t.Errorf("%s: %+v", name, s.Volumes)
			}
			if err := l.Verify(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: verify: %v", name, err)
			}
			k.set("/pods/a/v", state.Seen{})
			l.MountsSeen(fine)
			synctest.Wait()
			if s, _ := l.Pod("a"); s.Volumes[0].Drift != "" {
				t.Errorf("%s: it is over, but %+v", name, s.Volumes)
			}
			if err := l.Verify(t.Context(), "a"); err != nil {
				t.Errorf("%s: it is over, but verify: %v", name, err)
			}
		}
		equal(t, "calls", h.calls()[calls:], nil)
	})
}

// covers is a fakeNode whose looks show something else.
type covers struct {
	*fakeNode
	seen map[string]state.Seen
}

func (c covers) set(path string, s state.Seen) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen[path] = s; s == (state.Seen{}) {
		delete(c.seen, path)
	}
}

func (c covers) Look(ctx context.Context, path string) (state.Seen, error) {
	c.mu.Lock()
	s, ok := c.seen[path]
	c.mu.Unlock()
	if ok {
		return s, nil
	}
	return c.fakeNode.Look(ctx, path)
}

// Probe answers always.
func (c covers) Probe(context.Context, string) error { return nil }

// A volume whose storage does not answer fails verification.
func TestVerifyAsksTheStorage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d, func(c *Config) { c.Kernel = frozen{h} })
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		if err := l.Verify(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "no answer from the storage within 5s") {
			t.Errorf("frozen: %v", err)
		}
	})
}

// frozen is a fakeNode whose storage never answers.
type frozen struct{ *fakeNode }

func (frozen) Probe(ctx context.Context, _ string) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// blindKernel is a kernel that cannot examine anything while fails is set, and counts the attempts.
type blindKernel struct {
	*fakeNode
	fails atomic.Bool
	looks atomic.Int64
}

func (c *blindKernel) Look(ctx context.Context, path string) (state.Seen, error) {
	c.looks.Add(1)
	if c.fails.Load() {
		return state.Seen{}, errors.New("stale file handle")
	}
	return c.fakeNode.Look(ctx, path)
}

// A mount that cannot be examined is examined again after a pause, however many events have asked
// for a look meanwhile: each of them would otherwise start looks that are repeated for ever.
func TestLooksThatFailDoNotAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		k := &blindKernel{fakeNode: h}
		l := live(t, h, d, func(c *Config) { c.Kernel = k })
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		k.fails.Store(true)
		for range 100 {
			_ = l.Verify(t.Context(), "a")
			time.Sleep(time.Second)
		}
		synctest.Wait()
		before := k.looks.Load()
		time.Sleep(10 * lookRetry)
		if looks := k.looks.Load() - before; looks < 10 || looks > 2*11 { // at two paths
			t.Errorf("%d looks in %v, with a pause of %v", looks, 10*lookRetry, lookRetry)
		}
	})
}

// slowLook is a kernel whose looks take a moment.
type slowLook struct{ *fakeNode }

func (s slowLook) Look(ctx context.Context, path string) (state.Seen, error) {
	time.Sleep(10 * time.Millisecond)
	return s.fakeNode.Look(ctx, path)
}

// An agent tries to start a container until its runtime can: it calls Verify, the runtime fails, and it pauses until a
// second is over or its feed shows a change of the pod. Verify finds nothing new, and so cuts no pause short.
func TestAVerifyThatFindsNothingNewWakesNoReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d, func(c *Config) { c.Kernel = slowLook{h} })
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		feed := l.FollowPods()
		defer feed.Close()
		feed.Take()
		<-feed.Changed()
		const seconds = 10
		tries := 0
		for end := time.Now().Add(seconds * time.Second); time.Now().Before(end) && tries < 1000; tries++ {
			verified := make(chan error)
			go func() { verified <- l.Verify(t.Context(), "a") }()
			synctest.Wait()
			l.SetPod(podWant("a", "v")) // the agent has written the pod's status, and its source lists the pod again
			if err := <-verified; err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			select {
			case <-time.After(time.Second - 20*time.Millisecond):
			case <-feed.Changed():
				feed.Take()
			}
		}
		if tries != seconds {
			t.Errorf("%d tries in %d s, want one a second", tries, seconds)
		}
		h.lose("/pods/a/v")
		if err := l.Verify(t.Context(), "a"); err == nil {
			t.Error("the lost mount is not noticed")
		}
		synctest.Wait()
		select {
		case <-feed.Changed():
		default:
			t.Error("a look that finds a change wakes no reader")
		}
	})
}
