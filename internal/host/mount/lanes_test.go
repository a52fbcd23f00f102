package mount

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
)

// The calls of a lane run in turn: a waiting caller gets the lane when it is free, or an
// error when the call before it is left behind.
func TestCallsOfALaneAreMadeInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lanes{busy: make(map[lane]*pendingCall)}
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
	})
}

// A call may return just when its caller's time is over: a caller that gets a value gets
// that of its own call, and no goroutine is left.
func TestACallMayEndTogetherWithItsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lanes{busy: make(map[lane]*pendingCall)}
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
	})
}
