package isolate

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
)

// Calls get a helper in order of arrival. A call whose time ends meanwhile gives up its place.
func TestCallsWaitInOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var order []string // one worker runs at a time
		p := New(Config{Workers: 1, Service: Service{Handlers: map[string]Handler{"note": func(_ context.Context, request []byte) ([]byte, error) {
			<-release
			order = append(order, string(request))
			return nil, nil
		}}}})
		var calls sync.WaitGroup
		begin := func(ctx context.Context, n int, want error) {
			calls.Go(func() {
				if _, err := p.Do(ctx, strconv.Itoa(n), "note", []byte(strconv.Itoa(n))); !errors.Is(err, want) {
					t.Errorf("call %d: %v, want %v", n, err, want)
				}
			})
			synctest.Wait()
		}
		over, cancel := context.WithCancel(t.Context())
		var want []string
		for n := range 16 {
			if n == 5 {
				begin(over, n, context.Canceled)
				continue
			}
			begin(t.Context(), n, nil)
			want = append(want, strconv.Itoa(n))
		}
		cancel()
		close(release)
		calls.Wait()
		if !slices.Equal(order, want) {
			t.Errorf("in the order %v, want %v", order, want)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A turn that comes just when its waiter gives up goes to the next one.
func TestNoTurnIsLost(t *testing.T) {
	p := newPool(t, Config{Workers: 2, Service: service()})
	var calls sync.WaitGroup
	for c := range 8 {
		calls.Go(func() {
			for i := range 300 {
				ctx, cancel := context.WithCancel(t.Context())
				go cancel()
				if _, err := p.Do(ctx, strconv.Itoa((c+i)%5), "echo", nil); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, ErrHangs) {
					t.Error(err)
				}
			}
		})
	}
	calls.Wait()
	for i := range 5 {
		for errors.Is(p.Hung(strconv.Itoa(i)), ErrHangs) { // until the call has returned
			p.markSlowOnce()
		}
		p.mustDo(t, strconv.Itoa(i), "echo", "1")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running != 0 || len(p.waiting) != 0 || p.total != len(p.idle) {
		t.Errorf("%d run, %d wait, %d helpers, %d idle", p.running, len(p.waiting), p.total, len(p.idle))
	}
}

// The same, in the order in which a turn could be lost: the wait ends, and the turn comes
// before the waiter has given up its place.
func TestATurnThatComesTooLateIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := New(Config{Workers: 1, Service: Service{Handlers: map[string]Handler{
			"wait": func(context.Context, []byte) ([]byte, error) { <-release; return nil, nil },
		}}})
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 2)
		begin := func(ctx context.Context, key string) {
			go func() {
				_, err := p.Do(ctx, key, "wait", nil)
				errs <- err
			}()
			synctest.Wait()
		}
		begin(t.Context(), "a")
		begin(ctx, "b")
		p.mu.Lock()
		cancel()
		p.running-- // as if the first call had become slow
		p.admitWaiting()
		p.running++
		p.mu.Unlock()
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Errorf("the call that waited: %v", err)
		}
		if p.running != 1 || p.busy() != 1 {
			t.Errorf("%d calls run, for %d keys, want the first alone", p.running, p.busy())
		}
		close(release)
		if err := <-errs; err != nil {
			t.Error(err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}
