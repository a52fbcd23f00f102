package turn

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestOneAtATimeForAName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		end, err := turns.Take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if endB, err := turns.Take(t.Context(), "b"); err != nil {
			t.Errorf("another name: %v", err)
		} else {
			endB()
		}
		got := make(chan func(), 1)
		go func() {
			end, err := turns.Take(t.Context(), "a")
			if err != nil {
				t.Error(err)
			}
			got <- end
		}()
		synctest.Wait()
		if len(got) != 0 || !turns.Taken("a") || turns.Taken("b") {
			t.Errorf("two have the name, or none has: %d", len(got))
		}
		end()
		(<-got)()
		if turns.Taken("a") {
			t.Error("taken after the end")
		}
	})
}

func TestWhoWaitsMayGiveUp(t *testing.T) {
	var turns Turns
	end, err := turns.Take(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := turns.Take(ctx, "a"); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
}
