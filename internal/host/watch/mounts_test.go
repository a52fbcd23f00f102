package watch

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The table is read at the start. Changes of one moment cause one look, two looks are a
// pause apart, and a failed look is repeated without a change.
func TestEveryChangeOfTheMountTableIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		changes := make(chan struct{}, 1)
		ended := make(chan struct{})
		began := time.Now()
		var looks []time.Duration
		var fail atomic.Bool
		go func() {
			follow(ctx, changes, slog.New(slog.DiscardHandler), func() error {
				looks = append(looks, time.Since(began))
				if fail.Load() {
					return errors.New("not now")
				}
				return nil
			})
			close(ended)
		}()
		expect := func(what string, want ...time.Duration) {
			t.Helper()
			synctest.Wait()
			if len(looks) != len(want) {
				t.Fatalf("%s: looks after %v, want %v", what, looks, want)
			}
			for i := range want {
				if looks[i] != want[i] {
					t.Errorf("%s: looks after %v, want %v", what, looks, want)
				}
			}
		}
		expect("the start", 0)
		time.Sleep(10 * driftPause)
		expect("no change", 0)
		changes <- struct{}{}
		expect("a change", 0, 10*driftPause)
		changes <- struct{}{}
		synctest.Wait()
		changes <- struct{}{}
		time.Sleep(10 * driftPause)
		expect("two in a moment", 0, 10*driftPause, 11*driftPause, 12*driftPause)
		fail.Store(true)
		changes <- struct{}{}
		time.Sleep(driftPause / 2)
		fail.Store(false)
		time.Sleep(10 * driftPause)
		expect("a failure", 0, 10*driftPause, 11*driftPause, 12*driftPause, 20*driftPause, 21*driftPause)
		stop()
		close(changes)
		<-ended
	})
}

// If the table changes all the time, the pause before a look is proportional to the time
// that the last one took, but a look that hung does not postpone the next for long.
func TestLongLooksAtTheMountTableAreRare(t *testing.T) {
	for takes, want := range map[time.Duration]time.Duration{
		time.Millisecond:       driftPause,
		300 * time.Millisecond: 3 * time.Second,
		time.Minute:            driftMost,
	} {
		synctest.Test(t, func(t *testing.T) {
			changes := make(chan struct{}, 2)
			changes <- struct{}{}
			changes <- struct{}{}
			close(changes)
			var ended time.Time
			var pauses []time.Duration
			follow(t.Context(), changes, slog.New(slog.DiscardHandler), func() error {
				if !ended.IsZero() {
					pauses = append(pauses, time.Since(ended))
				}
				time.Sleep(takes)
				ended = time.Now()
				return nil
			})
			if !slices.Equal(pauses, []time.Duration{want, want}) {
				t.Errorf("after looks that take %v: pauses of %v, want %v", takes, pauses, want)
			}
		})
	}
}
