package isolate

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// slowHelper is a helper in the test's hands: it starts, and answers the call "wait", when the test says so.
type slowHelper struct{ t *testPool }

// testPool is a pool of slowHelpers.
type testPool struct {
	*Pool
	begun, ended    int        // starts, and helpers that ended; guarded by mu
	started, answer chan error // each start and each answer takes one
	stuck           bool
	calls           sync.WaitGroup
}

func newTestPool(t *testing.T) *testPool {
	p := &testPool{Pool: New(Config{}), started: make(chan error), answer: make(chan error)}
	p.newHelper = func() helper {
		p.begun++
		return &slowHelper{p}
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func (h *slowHelper) start() error { return <-h.t.started }

func (h *slowHelper) do(_ context.Context, _ message, begun func(func() bool)) ([]byte, bool, error) {
	begun(func() bool { return h.t.stuck })
	return nil, false, <-h.t.answer
}

func (h *slowHelper) end() {
	h.t.mu.Lock()
	defer h.t.mu.Unlock()
	h.t.ended++
}

// call makes a call for a key of its own, which must end with the error want.
func (p *testPool) call(t *testing.T, n int, want error) {
	p.calls.Go(func() {
		if _, err := p.Do(WithShares(t.Context(), Share{Name: strconv.Itoa(n), Percent: 100}), strconv.Itoa(n), "wait", nil); !errors.Is(err, want) {
			t.Errorf("call %d: %v, want %v", n, err, want)
		}
	})
	synctest.Wait()
}

// start ends the start of the helper that has started longest.
func (p *testPool) start(err error) {
	p.started <- err
	synctest.Wait()
}

func (p *testPool) want(t *testing.T, when string, begun, running, idle int) {
	t.Helper()
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.begun != begun || len(p.Pool.calls) != running || len(p.idle) != idle {
		t.Errorf("%s: %d helpers started, %d calls run, %d helpers idle, want %d, %d, %d", when, p.begun, len(p.Pool.calls), len(p.idle), begun, running, idle)
	}
}

// A helper that takes long to start is no reason to start another one, and the calls that wait for it have not begun.
func TestNoHelperIsStartedBecauseAnotherStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(t)
		for n := range 10 {
			p.call(t, n, nil)
		}
		time.Sleep(startMost - time.Second)
		p.want(t, "before the first has started", 1, 0, 0)
		p.start(nil)
		p.want(t, "when it has started", 2, 1, 0)
		for range 10 {
			p.answer <- nil
		}
		p.want(t, "when it has made all calls", 2, 0, 1)
		p.start(nil)
		p.want(t, "when the second has started", 2, 0, 2)
		p.calls.Wait()
	})
}

// A helper whose start hangs holds up the calls that wait for a while, and no longer.
func TestAHelperThatDoesNotStartIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(t)
		p.call(t, 0, nil)
		time.Sleep(startMost + time.Second)
		p.want(t, "when the start hangs", 2, 0, 0)
		p.start(nil)
		p.answer <- nil
		p.calls.Wait()
		failed := errors.New("no memory")
		p.start(failed) // the other one: no call waits for it
		p.want(t, "when one has failed", 2, 0, 1)
		p.call(t, 1, nil)
		p.call(t, 2, failed)
		p.start(failed)
		p.answer <- nil
		p.calls.Wait()
		p.want(t, "at the end", 3, 0, 1)
	})
}

// A call that lacks a processor is not slow for a while; one that waits for its storage is.
func TestACallWithoutAProcessorIsNotSlow(t *testing.T) {
	for _, stuck := range []bool{false, true} {
		t.Run("stuck="+strconv.FormatBool(stuck), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newTestPool(t)
				p.stuck = stuck
				for n := range defaultWorkers {
					p.call(t, n, nil)
					p.start(nil)
				}
				p.call(t, defaultWorkers, nil)
				p.want(t, "at once", defaultWorkers, defaultWorkers, 0)
				begun := defaultWorkers
				if time.Sleep(2 * slowAfter); stuck {
					begun++
				}
				p.want(t, "after some time", begun, defaultWorkers, 0)
				time.Sleep(starvedLooks * slowAfter)
				p.want(t, "after a long time", defaultWorkers+1, defaultWorkers, 0)
				p.start(nil)
				for range defaultWorkers + 1 {
					p.answer <- nil
				}
				p.calls.Wait()
			})
		})
	}
}

// Each slow call makes the next ones wait longer for helpers of their own, up to a bound: one that is slow may hang, where many
// are the machine is.
func TestManySlowCallsStartFewerHelpers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 30
		p := newTestPool(t)
		p.stuck = true
		go func() {
			for range many {
				p.started <- nil
			}
		}()
		for n := range many {
			p.call(t, n, nil)
		}
		time.Sleep(10 * slowAfter) // without the bound, each tenth of a second adds four
		synctest.Wait()
		p.mu.Lock()
		if p.begun <= defaultWorkers || p.begun > 4*defaultWorkers {
			t.Errorf("%d helpers started, want from %d to %d", p.begun, defaultWorkers+1, 4*defaultWorkers)
		}
		p.mu.Unlock()
		time.Sleep(many * slowMost)
		p.want(t, "in the end", many, many, 0)
		for range many {
			p.answer <- nil
		}
		p.calls.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.slow != 0 || p.running != 0 {
			t.Errorf("%d slow and %d running calls in the end", p.slow, p.running)
		}
	})
}

// Helpers that many calls needed are kept for the next calls, and end when no call has come for a while.
func TestIdleHelpersAreKeptForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 2 * defaultWorkers
		p := newTestPool(t)
		p.stuck = true
		for range 3 {
			for n := range many {
				p.call(t, n, nil)
				time.Sleep(2 * slowAfter)
				if p.begun == n+1 && p.total > len(p.idle)+len(p.Pool.calls) {
					p.start(nil)
				}
			}
			for range many {
				p.answer <- nil
			}
			p.calls.Wait()
			p.want(t, "after the calls", many, 0, many)
			time.Sleep(idleMost / 2)
		}
		time.Sleep(idleMost)
		p.want(t, "without calls", many, 0, defaultWorkers)
		if p.ended != many-defaultWorkers || p.total != defaultWorkers {
			t.Errorf("%d helpers ended, %d left, want %d and %d", p.ended, p.total, many-defaultWorkers, defaultWorkers)
		}
	})
}
