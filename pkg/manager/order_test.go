package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
)

// A volume that is staged is published before others begin; those begin in order of arrival.
func TestVolumesThatWaitForASlotGetItInOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeNode(t)
		l := live(t, h, newDisk(), func(c *Config) { c.Limits = plan.Limits{Node: 2, Driver: 2, Reserved: 1} })
		l.up(h)
		h.fails(func(string) fault { return fault{takes: time.Second} })
		const pods = 20
		for i := range pods {
			l.SetPod(podWant(fmt.Sprintf("p%02d", i), fmt.Sprintf("v%02d", i)))
			synctest.Wait()
		}
		for i := range pods {
			mounted(t, l, fmt.Sprintf("p%02d", i))
		}
		var staged []string
		for _, c := range h.calls() {
			if strings.HasPrefix(c, "Stage") {
				staged = append(staged, c)
			}
		}
		if len(staged) != pods || !slices.IsSorted(staged) {
			t.Errorf("staged in the order %v", staged)
		}
	})
}

// That holds even if a slot becomes free at the moment when another volume arrives.
func TestNoArrivalOvertakesAVolumeThatWaitsForASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeNode(t)
		l := live(t, h, newDisk(), func(c *Config) { c.Limits = plan.Limits{Node: 2, Driver: 2, Reserved: 1} })
		l.up(h)
		const long = 10 * time.Millisecond // shorter than the pause after a failure
		h.fails(func(string) fault { return fault{takes: long, err: errors.New("no")} })
		l.SetPod(podWant("a", "a"))
		synctest.Wait()
		l.SetPod(podWant("b", "b"))
		synctest.Wait()
		equal(t, "in flight", h.busy(), []string{"Stage d^a"})
		for _, next := range []string{"Stage d^b", "Stage d^c"} {
			l.atOnce(func() {
				l.SetPod(podWant("c", "c"))
				time.Sleep(long)
				synctest.Wait()
			})
			synctest.Wait()
			equal(t, "in flight", h.busy(), []string{next})
		}
	})
}

// The error of a wait describes the state at its end, although changes that do not decide the
// wait did not wake it.
func TestAWaitThatFailsTellsTheLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeNode(t)
		l := live(t, h, newDisk())
		h.fails(func(call string) fault { return fault{err: errors.New("disk is away")} })
		l.SetPod(podWant("p", "v"))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		time.AfterFunc(time.Second, func() { l.up(h) }) // from waiting for the driver to failing calls
		err := l.WaitForAttachAndMount(ctx, "p")
		if err == nil || !strings.Contains(err.Error(), "failed attempts") {
			t.Errorf("got %v", err)
		}
	})
}

// If a pod leaves before its volume had a slot, the removal takes a removal's slot, although the
// volume waited for another one.
func TestAVolumeThatWaitsToBeMadeAndIsRemovedUsesTheSlotsOfRemovals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeNode(t)
		l := live(t, h, newDisk(), one)
		l.up(h)
		l.SetPod(podWant("a", "v"))
		mounted(t, l, "a")
		h.fails(func(call string) fault { return fault{hangs: strings.HasPrefix(call, "Stage d^w")} })
		l.SetPod(podWant("c", "w")) // takes the one slot for making
		synctest.Wait()
		l.SetPod(podWant("b", "v")) // waits for it
		synctest.Wait()
		l.RemovePod("b")
		l.RemovePod("a")
		rest()
		gone(t, l, "a")
	})
}

// 550 volumes of a driver whose calls take 50 ms, however many there are: Pace finds that out,
// so that three rounds suffice instead of the twenty with a fixed limit.
func TestADriverThatWaitsGetsAsManyCallsAsItCanTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeNode(t)
		l := live(t, h, newDisk())
		l.up(h)
		h.fails(func(string) fault { return fault{takes: 50 * time.Millisecond} })
		began := time.Now()
		const pods = 550
		for i := range pods {
			l.SetPod(podWant(fmt.Sprint("p", i), fmt.Sprint("v", i)))
		}
		for i := range pods {
			mounted(t, l, fmt.Sprint("p", i))
		}
		if took := time.Since(began); took > 200*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}

// A driver that serves one call after the other gets no more than the limit at once.
func TestADriverThatWorksGetsNoMoreCallsThanTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeNode(t)
		l := live(t, h, newDisk())
		l.up(h)
		most := 0
		var free time.Time // when the driver has done all calls so far
		h.fails(func(string) fault {
			most = max(most, len(h.inFlight))
			if now := time.Now(); free.Before(now) {
				free = now
			}
			free = free.Add(50 * time.Millisecond)
			return fault{takes: time.Until(free)}
		})
		for i := range 300 {
			l.SetPod(podWant(fmt.Sprint("p", i), fmt.Sprint("v", i)))
		}
		for i := range 300 {
			mounted(t, l, fmt.Sprint("p", i))
		}
		if limit := plan.DefaultLimits().Driver; most > limit+10 {
			t.Errorf("%d calls at once, limit %d", most, limit)
		}
	})
}

// A burst starts with few calls, which show how long a call takes. A driver that does not answer
// soon gets a few more as time passes; a driver that is known to be fast gets all at once.
func TestTheFirstCallsOfABurstAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeNode(t)
		l := live(t, h, newDisk())
		l.up(h)
		limits, takes := plan.DefaultLimits(), time.Millisecond
		h.fails(func(call string) fault {
			return fault{hangs: strings.Contains(call, "^hung"), takes: takes}
		})
		inFlight := func() int {
			synctest.Wait()
			h.mu.Lock()
			defer h.mu.Unlock()
			return len(h.inFlight)
		}
		burst := func(of string) int {
			for i := range 100 {
				l.SetPod(podWant(fmt.Sprint(of, i), fmt.Sprint(of, i)))
			}
			return inFlight()
		}
		if n := burst("a"); n != limits.First {
			t.Errorf("%d calls at first, want %d", n, limits.First)
		}
		for i := range 100 {
			mounted(t, l, fmt.Sprint("a", i))
		}
		if n, want := burst("b"), limits.Driver-limits.Reserved; n != want {
			t.Errorf("%d calls at once of a driver that is known to be fast, want %d", n, want)
		}
		for i := range 100 {
			mounted(t, l, fmt.Sprint("b", i))
		}
		l.up(h) // another process, whose pace is unknown
		if n := burst("hung"); n != limits.First {
			t.Errorf("%d calls at first of another process, want %d", n, limits.First)
		}
		time.Sleep(plan.FirstWait * 3 / 2)
		if n := inFlight(); n != 2*limits.First {
			t.Errorf("%d calls after %v, want %d", n, plan.FirstWait, 2*limits.First)
		}
		time.Sleep(10 * plan.FirstWait)
		if n, want := inFlight(), limits.Driver-limits.Reserved; n != want {
			t.Errorf("%d calls in the end, want %d", n, want)
		}
		h.fails(nil)
		rest()
	})
}
