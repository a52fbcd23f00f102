package mount

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/isolate"
)

// Calls that follow each other share a goroutine, also after one that was left behind.
func TestCallsInLanesShareAGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lanes{busy: make(map[lane]*passage)}
		call := func(f func() (int, error)) (int, error) {
			ctx, cancel := context.WithTimeout(t.Context(), lingerTime/4)
			defer cancel()
			return inLane(ctx, l, lane{"look", "/a"}, f)
		}
		for i := range 100 {
			if v, err := call(func() (int, error) { return i, nil }); v != i || err != nil {
				t.Fatalf("call %d: %d, %v", i, v, err)
			}
		}
		if len(l.idle) != 1 {
			t.Errorf("%d goroutines for calls, want one", len(l.idle))
		}
		storage := make(chan struct{})
		if _, err := call(func() (int, error) { <-storage; return 0, nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("call that hangs: %v", err)
		}
		close(storage)
		synctest.Wait()
		if len(l.idle) != 0 { // where the note of a call that was left behind could be taken for another's
			t.Errorf("%d goroutines for calls, want none", len(l.idle))
		}
	})
}

// The calls of a lane are made in turn: the waiting caller gets the lane when it is
// free, or is told when the call before it is left behind.
func TestCallsOfALaneAreMadeInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lanes{busy: make(map[lane]*passage)}
		storage := make(chan struct{})
		wait := func() (int, error) { <-storage; return 0, nil }
		errs := make(chan error, 2)
		begin := func(ctx context.Context) {
			go func() {
				_, err := inLane(ctx, l, lane{"look", "/a"}, wait)
				errs <- err
			}()
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		begin(ctx)
		begin(t.Context())
		for range 2 {
			storage <- struct{}{}
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		begin(ctx)
		begin(t.Context())
		cancel()
		if err := errors.Join(<-errs, <-errs); !errors.Is(err, context.Canceled) || !errors.Is(err, isolate.ErrHangs) {
			t.Errorf("%v, want that one was canceled and the other hangs", err)
		}
		storage <- struct{}{}
		time.Sleep(lingerTime) // of the bubble's clock
	})
}

// A call may return just when its caller's time is over: a caller that gets a value
// gets that of its own call, and no goroutine is left.
func TestACallMayEndTogetherWithItsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lanes{busy: make(map[lane]*passage)}
		var callers sync.WaitGroup
		for c := range 8 {
			callers.Go(func() {
				for i := range 500 {
					ctx, cancel := context.WithCancel(t.Context())
					want := fmt.Sprintf("%d of %d", i, c)
					f := func() (string, error) { return want, nil }
					if i%2 == 0 {
						f = func() (string, error) { cancel(); return want, nil }
					}
					got, err := inLane(ctx, l, lane{"look", want}, f)
					if err == nil && got != want || err != nil && !errors.Is(err, context.Canceled) {
						t.Errorf("%q, %v, want %q", got, err, want)
					}
					cancel()
				}
			})
		}
		callers.Wait()
		time.Sleep(lingerTime) // of the bubble's clock
	})
}
