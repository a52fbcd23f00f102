package isolate

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// If as many calls of a share hang as its limit allows, the next call of the share is
// refused, by the share's name, and calls of other shares go on.
//
// Attacks: C50.
func TestAttackHangingShareLeavesRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := New(Config{Workers: 2, Limit: 10, Service: Service{Handlers: map[string]Handler{
			"hang": func(context.Context, []byte) ([]byte, error) { <-release; return nil, nil },
			"echo": func(context.Context, []byte) ([]byte, error) { return nil, nil },
		}}})
		dead, other := Share{"server dead", 20}, Share{"server other", 20}
		mine, theirs := Share{"namespace mine", 40}, Share{"namespace theirs", 40}
		var calls sync.WaitGroup
		hang := func(key string, shares ...Share) {
			ctx, leave := context.WithCancel(WithShares(t.Context(), shares...))
			calls.Go(func() {
				if _, err := p.Do(ctx, key, "hang", nil); !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v", key, err)
				}
			})
			synctest.Wait()
			leave()
			synctest.Wait()
		}
		echo := func(key, want string, shares ...Share) {
			t.Helper()
			_, err := p.Do(WithShares(t.Context(), shares...), key, "echo", nil)
			if want == "" && err != nil || want != "" && (!errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s: got %v, want %q", key, err, want)
			}
		}
		hang("1", dead, mine)
		echo("2", "", dead, mine)
		hang("2", dead, mine)
		echo("3", "the 2 allowed for server dead, of 10 helpers", dead, mine)
		echo("3", "server dead", dead, theirs)
		echo("3", "", other, mine)
		hang("3", other, mine)
		hang("4", Share{"server third", 20}, mine)
		echo("5", "the 4 allowed for namespace mine, of 10 helpers", Share{"server fourth", 20}, mine)
		echo("5", "", other, theirs)
		for i := range 2 {
			hang("rest " + strconv.Itoa(i))
		}
		echo("rest", "calls of no volume")
		echo("5", "", other, theirs)
		close(release)
		calls.Wait()
		synctest.Wait()
		echo("3", "", dead, mine)
		echo("rest", "")
		if len(p.shares) != 0 {
			t.Errorf("left of shares: %v", p.shares)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A call whose share has enough calls under way waits for one of them, and delays no later
// call of another share.
func TestCallsWaitForTheirShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var mu sync.Mutex
		var order []string
		p := New(Config{Workers: 4, Limit: 10, Service: Service{Handlers: map[string]Handler{
			"note": func(_ context.Context, request []byte) ([]byte, error) {
				mu.Lock()
				order = append(order, string(request))
				mu.Unlock()
				if string(request) == "first" {
					<-release
				}
				return nil, nil
			},
		}}})
		var calls sync.WaitGroup
		begin := func(name, share string) {
			calls.Go(func() {
				if _, err := p.Do(WithShares(t.Context(), Share{share, 10}), name, "note", []byte(name)); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
			synctest.Wait()
		}
		begin("first", "a")
		begin("second", "a")
		begin("third", "b")
		if got := strings.Join(order, " "); got != "first third" {
			t.Errorf("begun: %s, want first third", got)
		}
		close(release)
		calls.Wait()
		if got := strings.Join(order, " "); got != "first third second" {
			t.Errorf("begun: %s", got)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}
