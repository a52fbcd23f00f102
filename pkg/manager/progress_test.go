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

// The status shows a call's progress while it is in flight, and no longer.
//
// Items: G09.
func TestProgressOfTheCallInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d)
		progress := func() string {
			synctest.Wait()
			v, _ := l.Volume("d^v")
			return v.Progress
		}
		l.up(h)
		l.Progress("d^v", "of no call")
		h.fails(times(1, "Publish", fault{takes: time.Minute}))
		l.SetPod(podWant("a", "v"))
		synctest.Wait()
		if got := progress(); got != "" {
			t.Errorf("before anything was told: %q", got)
		}
		for _, text := range []string{"10 files", "20 files"} {
			l.Progress("d^v", text)
			if got := progress(); got != text {
				t.Errorf("got %q, want %q", got, text)
			}
		}
		mounted(t, l, "a")
		l.Progress("d^v", "too late")
		if got := progress(); got != "" {
			t.Errorf("after the call: %q", got)
		}
	})
}

// walk is a fault that lasts until its context ends or it is released; it keeps reporting
// progress.
type walk struct {
	*fakeNode
	l    *life
	free chan struct{}
	why  chan error
}

func (w walk) Publish(ctx context.Context, v state.Volume, pod state.PodUID) (time.Time, error) {
	for {
		select {
		case <-w.free:
			return w.fakeNode.Publish(ctx, v, pod)
		case <-time.After(time.Second):
			w.l.Progress(v.ID, "so far")
		case <-ctx.Done():
			w.why <- context.Cause(ctx)
			return time.Time{}, &state.CallError{Outcome: state.Uncertain, Call: "fsGroup", Err: ctx.Err()}
		}
	}
}

func walking(t *testing.T) walk {
	h, d := newFakeNode(t), newDisk()
	w := walk{h, live(t, h, d), make(chan struct{}), make(chan error, 9)}
	w.l.DriverUp(DriverInfo{Name: "d", Stage: true, MountsTarget: true}, w)
	w.l.SetPod(podWant("a", "v"))
	return w
}

// A call that reports progress is not cancelled, however long it takes.
//
// Items: G09.
func TestACallThatGetsOnIsLeftToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := walking(t)
		time.Sleep(time.Hour)
		synctest.Wait()
		if v, _ := w.l.Volume("d^v"); v.Call.Kind != plan.Publish || v.Progress != "so far" || len(w.why) != 0 {
			t.Errorf("after an hour: %+v", v)
		}
		close(w.free)
		mounted(t, w.l, "a")
	})
}

// It ends at once when its pod leaves, and its effect is undone. If the pod left before the first
// report, the call ends with that.
//
// Items: G10.
func TestAWalkForAPodThatWentEnds(t *testing.T) {
	for _, after := range []time.Duration{0, 500 * time.Millisecond, 10 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			w := walking(t)
			time.Sleep(after)
			synctest.Wait()
			w.l.RemovePod("a")
			at := time.Now()
			if why := <-w.why; !errors.Is(why, errUnwanted) || time.Since(at) > time.Second {
				t.Errorf("after %v: ended %v later by %v", after, time.Since(at), why)
			}
			gone(t, w.l, "a")
			rest()
			if !w.clean() {
				t.Error("something is left")
			}
		})
	}
}

// A call that reports nothing is cancelled at its deadline.
func TestACallWithoutAWordEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := withLimit(t.Context(), time.Minute)
		defer ctx.end()
		time.Sleep(50 * time.Second)
		ctx.restart()
		time.Sleep(59 * time.Second)
		if ctx.Err() != nil {
			t.Fatal("ended too early")
		}
		child, cancel := context.WithCancel(ctx)
		defer cancel()
		<-child.Done()
		if err := context.Cause(child); ctx.Err() != context.DeadlineExceeded || !errors.Is(err, context.DeadlineExceeded) || err.Error() != "no answer within 1m0s" {
			t.Errorf("%v, %v", ctx.Err(), err)
		}
		ctx.restart() // too late
		if ctx.Err() != context.DeadlineExceeded {
			t.Error("it lives again")
		}
	})
	synctest.Test(t, func(t *testing.T) { // so does the look after the call
		ctx := withLimit(t.Context(), time.Hour)
		defer ctx.end()
		began := time.Now()
		ctx.setDeadline(lookDeadline, errNoLook)
		<-ctx.Done()
		if took := time.Since(began); took != lookDeadline || ctx.Err() != context.DeadlineExceeded || context.Cause(ctx) != errNoLook {
			t.Errorf("after %v: %v, %v", took, ctx.Err(), context.Cause(ctx))
		}
		ctx.setDeadline(time.Hour, errNoLook) // too late
		if ctx.Err() != context.DeadlineExceeded {
			t.Error("it lives again")
		}
	})
	other := withLimit(t.Context(), time.Hour)
	other.end()
	if other.Err() != context.Canceled {
		t.Errorf("ended by hand: %v", other.Err())
	}
}
