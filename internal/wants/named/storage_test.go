package named

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// driverAway is the state of a claim whose driver is not up.
var driverAway = ClaimState{Stalled: true, Why: "driver d.example.com is not registered", Next: "start it: systemctl start d"}

// A Create whose driver does not come up fails with the reason and the next command, and leaves nothing behind, neither
// now nor for the next start.
func TestCreateWithoutItsDriverFailsAndLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, c, stop := h.start(t, "1")
		defer stop()
		h.is(driverAway)
		created := make(chan error, 1)
		go func() { created <- p.Create(t.Context(), Request{Name: "db", FrontEnd: Docker}) }()
		time.Sleep(Patience - 1)
		synctest.Wait()
		if len(created) != 0 {
			t.Fatalf("given up before the driver had %s to register: %v", Patience, <-created)
		}
		if v, err := p.Get(t.Context(), "db"); err != nil || !v.Creating || len(v.Waits) != 1 || !strings.Contains(v.Waits[0], driverAway.Why) {
			t.Errorf("while it waits: %+v, %v", v, err)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if len(created) == 0 {
			t.Fatalf("still waiting after %s", Patience)
		}
		err := <-created
		for _, words := range []string{"volume db", "claim default/db", driverAway.Why, "no volume was made", driverAway.Next} {
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("%v lacks %q", err, words)
			}
		}
		claim := c.Get(source.Key{Kind: resolve.KindClaim, Namespace: "default", Name: "db"})
		if list, _ := p.List(t.Context()); len(list) != 0 || len(h.kv) != 0 || claim != nil {
			t.Errorf("left behind: %v, journal %s, claim %v", list, h.kv["db"], claim)
		}
	})
}

// A driver that registers within the patience, as at a boot, gets its volume made, however long that takes; and one that
// goes and comes back gets the whole time again.
func TestCreateWaitsForADriverThatComesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, _, stop := h.start(t, "1")
		defer stop()
		h.is(driverAway)
		created := make(chan error, 1)
		go func() { created <- p.Create(t.Context(), Request{Name: "db", FrontEnd: Docker}) }()
		for _, c := range []ClaimState{{Why: "CreateVolume is in flight"}, driverAway, {Why: "CreateVolume failed"}} {
			time.Sleep(Patience - 1)
			h.is(c)
		}
		time.Sleep(time.Minute)
		h.is(ClaimState{Bound: true})
		if err := <-created; err != nil || len(h.kv) != 1 {
			t.Errorf("%v; journal: %v", err, h.kv)
		}
	})
}

// The state of other claims changes all the time; the wait for the driver is not longer for it.
func TestOtherChangesDoNotProlongTheWaitForADriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, _, stop := h.start(t, "1")
		defer stop()
		h.is(driverAway)
		created := make(chan error, 1)
		go func() {
			created <- p.Create(t.Context(), Request{Name: "db", FrontEnd: Mount, Patience: 2500 * time.Millisecond})
		}()
		for range 2 {
			time.Sleep(time.Second)
			h.is(driverAway)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(created) == 0 {
			t.Fatal("still waiting after the patience of its request")
		}
		if err := <-created; err == nil {
			t.Error("created without a driver")
		}
		if v, err := p.Get(t.Context(), "db"); !errors.Is(err, ErrNotFound) {
			t.Errorf("%+v, %v", v, err)
		}
	})
}

// A daemon that stopped during a Create has the row of a volume that was never made. The repetition of the Create ends
// as the first would have: without a driver nothing is left, and with it the volume is made. Two at a time agree.
func TestTheRepetitionOfACreateThatNeverBegan(t *testing.T) {
	for _, comesUp := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h := newHost()
			p, _, stop := h.start(t, "1")
			h.is(driverAway)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { _ = p.Create(ctx, Request{Name: "db", FrontEnd: Docker}) }()
			synctest.Wait()
			killed := maps.Clone(h.kv)
			cancel()
			synctest.Wait()
			if len(h.kv) != 0 {
				t.Errorf("left behind after the caller has gone: %v", h.kv)
			}
			stop()
			h.kv = killed
			p, _, stop = h.start(t, "1")
			defer stop()
			if v, err := p.Get(t.Context(), "db"); err != nil || len(v.Waits) != 1 || v.Creating {
				t.Errorf("what was left by the daemon that stopped: %+v, %v", v, err)
			}
			created := make(chan error, 2)
			for range 2 {
				go func() { created <- p.Create(t.Context(), Request{Name: "db", FrontEnd: Docker}) }()
			}
			synctest.Wait()
			if comesUp {
				h.is(ClaimState{Bound: true})
			}
			for range 2 {
				if err := <-created; (err == nil) != comesUp {
					t.Errorf("driver up %v: %v", comesUp, err)
				}
			}
			if (len(h.kv) == 1) != comesUp {
				t.Errorf("driver up %v: journal %v", comesUp, h.kv)
			}
		})
	}
}

// Of two Creates of a volume whose driver does not come up, the later one ends with the earlier, which removes the volume.
func TestALaterCreateEndsWithTheEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, _, stop := h.start(t, "1")
		defer stop()
		h.is(driverAway)
		created := make(chan error, 2)
		for range 2 {
			go func() { created <- p.Create(t.Context(), Request{Name: "db", FrontEnd: Docker}) }()
			time.Sleep(time.Second)
		}
		time.Sleep(Patience - 2*time.Second + 1) // the earlier one has just given up
		synctest.Wait()
		h.is(ClaimState{}) // the controller has forgotten the claim
		for range 2 {
			if err := <-created; err == nil || !strings.Contains(err.Error(), driverAway.Why) {
				t.Error(err)
			}
		}
		if len(h.kv) != 0 {
			t.Errorf("left behind: %v", h.kv)
		}
	})
}
