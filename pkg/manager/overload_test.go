package manager

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// narrow are limits so low that a test sees their effect.
func narrow(c *Config) { c.Limits = plan.Limits{Node: 100, Driver: 32, Most: 32, Reserved: 2} }

// A driver that serves four calls at once, and answers RESOURCE_EXHAUSTED to more, soon gets
// little more than that, and again as many as before when it is a new process.
func TestADriverThatHasTooMuchToDoIsAskedForLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d, narrow)
		l.up(h)
		refused, made := 0, 0
		h.fails(func(string) fault {
			if n := len(h.inFlight); n > 4 {
				refused++
				f := answer(state.Uncertain, "x", "ResourceExhausted")
				f.takes = 10 * time.Millisecond
				return f
			}
			made++
			return fault{takes: 100 * time.Millisecond}
		})
		for i := range 100 {
			l.SetPod(podWant(fmt.Sprint("p", i), fmt.Sprint("v", i)))
		}
		synctest.Wait()
		time.Sleep(time.Second)
		synctest.Wait()
		if s := l.Drivers()[0]; s.Limit == 0 || s.Limit > 16 || s.Calls > 16 {
			t.Errorf("a second later: limit %d, calls %d", s.Limit, s.Calls)
		}
		for i := range 100 {
			mounted(t, l, fmt.Sprint("p", i))
		}
		if refused > made {
			t.Errorf("%d calls were refused, %d made", refused, made)
		}
		t.Logf("%d calls were refused, %d made", refused, made)
		h.fails(nil)
		l.up(h)
		synctest.Wait()
		if s := l.Drivers()[0]; s.Limit != 0 {
			t.Errorf("of another process: limit %d", s.Limit)
		}
	})
}

// Calls that hang make their driver count as overloaded, and delay other volumes no longer than
// a call may then keep its slot.
func TestVolumesThatHangHoldUpNoOtherForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d, narrow)
		l.up(h)
		h.fails(func(call string) fault {
			if strings.Contains(call, "^hung") {
				f := answer(state.Uncertain, "NodeStageVolume", "DeadlineExceeded")
				f.takes = 2 * time.Minute
				return f
			}
			return fault{takes: time.Millisecond}
		})
		for i := range 6 {
			l.SetPod(podWant(fmt.Sprint("h", i), fmt.Sprint("hung", i)))
			time.Sleep(7 * time.Second)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if s := l.Drivers()[0]; s.Limit != 1 {
			t.Errorf("limit %d, want 1", s.Limit)
		}
		for i := range 20 {
			at := time.Now()
			l.SetPod(podWant(fmt.Sprint("p", i), fmt.Sprint("v", i)))
			mounted(t, l, fmt.Sprint("p", i))
			if took := time.Since(at); took > 2*plan.SlowSlot {
				t.Errorf("pod %d waited %v", i, took)
			}
			time.Sleep(13 * time.Second)
		}
		// Calls that hang do not prevent removals.
		at := time.Now()
		for i := range 20 {
			l.RemovePod(state.PodUID(fmt.Sprint("p", i)))
		}
		for i := range 20 {
			gone(t, l, fmt.Sprint("p", i))
		}
		if took := time.Since(at); took > 2*plan.SlowSlot {
			t.Errorf("removed after %v", took)
		}
		h.fails(nil)
		rest()
	})
}
