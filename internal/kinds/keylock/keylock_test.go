package keylock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestOneAtATimeForAName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var locks Locks
		end, err := locks.Lock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if endB, err := locks.Lock(t.Context(), "b"); err != nil {
			t.Errorf("another name: %v", err)
		} else {
			endB()
		}
		got := make(chan func(), 1)
		go func() {
			end, err := locks.Lock(t.Context(), "a")
			if err != nil {
				t.Error(err)
			}
			got <- end
		}()
		synctest.Wait()
		if len(got) != 0 || !locks.Locked("a") || locks.Locked("b") {
			t.Errorf("two have the name, or none has: %d", len(got))
		}
		end()
		(<-got)()
		if locks.Locked("a") {
			t.Error("taken after the end")
		}
	})
}

func TestWhoWaitsMayGiveUp(t *testing.T) {
	var locks Locks
	end, err := locks.Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := locks.Lock(ctx, "a"); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
}
