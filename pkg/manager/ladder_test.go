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

// unmounter records the steps by which volumes are unmounted; one of them succeeds for a pod's
// mount.
type unmounter struct {
	h      *fakeNode
	frees  state.UnmountStep
	mu     sync.Mutex
	steps  []string
	failed error
}

// use makes a manager unmount by u. Until the step that succeeds was made, Unpublish fails.
func (u *unmounter) use(ladders plan.Ladders) option {
	busy := errors.New("device or resource busy")
	u.h.fails(func(call string) fault {
		if strings.HasPrefix(call, "Unpublish") && !u.freed() {
			return fault{err: busy}
		}
		return fault{}
	})
	return func(c *Config) {
		c.Ladders = ladders
		c.Unmount = func(_ context.Context, v state.Volume, pod state.PodUID, step state.UnmountStep) error {
			u.mu.Lock()
			defer u.mu.Unlock()
			u.steps = append(u.steps, string(step)+" "+v.Spec.Name+" "+string(pod))
			return u.failed
		}
	}
}

func (u *unmounter) freed() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.ContainsFunc(u.steps, func(s string) bool { return strings.HasPrefix(s, string(u.frees)+" ") })
}

func (u *unmounter) made() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Compact(slices.Clone(u.steps))
}

// An unmount that fails climbs the ladder of its driver, which its status shows, until a step
// succeeds. OnCall reports the step.
func TestAnUnmountThatFailsClimbsTheLadderOfItsDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &unmounter{h: newFakeNode(t), frees: state.UnmountLazy, failed: errors.New("the step fails too")}
		var calls []EndedCall
		l := live(t, u.h, newDisk(), u.use(plan.Ladders{"d": {{Step: state.UnmountForce, After: time.Minute}, {Step: state.UnmountLazy, After: time.Hour}}}),
			func(c *Config) { c.OnCall = func(e EndedCall) { calls = append(calls, e) } })
		l.up(u.h)
		l.SetPod(podWant("p", "v"))
		mounted(t, l, "p")
		l.RemovePod("p")
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if got := u.made(); len(got) > 0 {
			t.Errorf("steps before the first is due: %q", got)
		}
		v, _ := l.Volume("d^v")
		if c := v.Unmount; c == nil || c.Kind != plan.Unpublish || c.Step != "" || c.Next != state.UnmountForce || c.Path != "/pods/p/v" {
			t.Errorf("shown: %+v", c)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		equal(t, "steps when the first is due", u.made(), []string{"force v p"})
		v, _ = l.Volume("d^v")
		if c := v.Unmount; c == nil || c.Step != state.UnmountForce || c.Next != state.UnmountLazy || !strings.Contains(v.Volume.Mounts["p"].Retry().Error, "the step fails too") {
			t.Errorf("shown: %+v, %+v", c, v.Volume.Mounts["p"].Retry())
		}
		gone(t, l, "p")
		equal(t, "steps", u.made(), []string{"force v p", "lazy v p"})
		rest()
		if !u.h.clean() {
			t.Error("something is left")
		}
		i := slices.IndexFunc(calls, func(e EndedCall) bool { return e.Op == plan.Unpublish && e.Error == "" })
		if i < 0 || calls[i].Step != state.UnmountLazy || calls[i].Of.ID != "d^v" || calls[i+1].Step != "" {
			t.Errorf("told: %+v", calls)
		}
	})
}

// Without a ladder nothing is forced, however long it fails. An operator's order forces the stuck
// unmount once, and not the Unstage that follows.
func TestByOrderOneUnmountIsForced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &unmounter{h: newFakeNode(t), frees: state.UnmountForce}
		l := live(t, u.h, newDisk(), u.use(nil))
		l.up(u.h)
		l.SetPod(podWant("p", "v"))
		mounted(t, l, "p")
		if err := l.UnmountBy(t.Context(), "d^v", state.UnmountLazy); !errors.Is(err, ErrNotStuck) {
			t.Errorf("of what a pod uses: %v, want %v", err, ErrNotStuck)
		}
		if err := l.UnmountBy(t.Context(), "d^nothing", state.UnmountLazy); !errors.Is(err, ErrNotStuck) {
			t.Errorf("of nothing: %v, want %v", err, ErrNotStuck)
		}
		l.RemovePod("p")
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if got := u.made(); len(got) > 0 {
			t.Errorf("steps without a word: %q", got)
		}
		if err := l.UnmountBy(t.Context(), "d^v", state.UnmountForce); err != nil {
			t.Fatal(err)
		}
		gone(t, l, "p")
		rest()
		equal(t, "steps", u.made(), []string{"force v p"})
		if !u.h.clean() {
			t.Error("something is left")
		}
	})
}

// An order that comes while the unmount is in flight applies to that one: if it succeeds
// nevertheless, nothing is forced.
func TestAnOrderEndsWithTheUnmountThatItWasFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeNode(t)
		u := &unmounter{h: h}
		l := live(t, h, newDisk(), u.use(nil))
		h.fails(func(call string) fault {
			if strings.HasPrefix(call, "Unpublish") {
				return fault{takes: time.Minute}
			}
			return fault{}
		})
		l.up(h)
		l.SetPod(podWant("p", "v"))
		mounted(t, l, "p")
		l.RemovePod("p")
		time.Sleep(time.Second)
		if err := l.UnmountBy(t.Context(), "d^v", state.UnmountLazy); err != nil {
			t.Fatal(err)
		}
		gone(t, l, "p")
		rest()
		if got := u.made(); len(got) > 0 || !h.clean() {
			t.Errorf("steps: %q", got)
		}
	})
}

// Without Config.Unmount there are no orders.
func TestNoOrderWhereNobodyCanUnmount(t *testing.T) {
	l := live(t, newFakeNode(t), newDisk())
	if err := l.UnmountBy(t.Context(), "d^v", state.UnmountForce); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
}
