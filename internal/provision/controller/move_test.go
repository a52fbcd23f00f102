package controller

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// retained makes the volume of a claim, which then no source lists.
func (h *fakeNode) retained(c Claim) Volume {
	h.t.Helper()
	c.Class.Retain = true
	h.set(c)
	h.up()
	v := h.bound(c.Key)
	h.c.RemoveClaim(c.Key)
	synctest.Wait()
	return v
}

func (h *fakeNode) mustMove(from, to string, parked json.RawMessage) {
	h.t.Helper()
	if err := h.c.Move(h.t.Context(), testKey(from), testKey(to), parked); err != nil {
		h.t.Fatal(err)
	}
	synctest.Wait()
}

// A volume that is moved to another claim keeps its name and handle, and the next volume of the claim has others, also
// where the driver finds volumes by their names or by the claim's. Each claim finds its own again after a restart.
func TestAMovedVolumeIsTheOtherClaims(t *testing.T) {
	b := newBackend()
	var told []string
	b.fault = onCall("CreateVolume", func(_ string, req proto.Message) fault {
		p := req.(*csi.CreateVolumeRequest).GetParameters()
		told = append(told, p["csi.storage.k8s.io/pvc/name"]+" "+p["csi.storage.k8s.io/pv/name"])
		return fault{}
	})
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		claim := testClaim("db", mib)
		claim.Class.Metadata = true
		first := h.retained(claim)
		note := json.RawMessage(`{"volume":"db"}`)
		h.mustMove("db", "db.removed-1", note)
		if _, ok := h.c.Claim(testKey("db")); ok {
			t.Error("the claim still has a status")
		}
		for range 2 { // the second is of the next life
			s := h.status(testKey("db.removed-1"))
			if s.Phase != Released || string(s.Parked) != string(note) || s.Volume.Name != first.Name || s.Volume.Handle != first.Handle {
				t.Errorf("%+v", s)
			}
			if all, err := h.c.AllParked(t.Context()); err != nil || len(all) != 1 || all[0].Claim != testKey("db.removed-1") {
				t.Errorf("parked: %+v, %v", all, err)
			}
			h.end()
			h.live()
		}
		second := h.retained(claim)
		if second.Name != "pvc-uid-db-2" || second.Handle == first.Handle {
			t.Fatalf("the next volume is %s, handle %s", second.Name, second.Handle)
		}
		h.mustMove("db", "db.removed-2", note)
		third := h.retained(claim)
		h.mustMove("db", "other", nil)
		h.mustMove("db.removed-1", "db", nil)
		h.end()
		h.live()
		h.up()
		h.set(claim)
		if v := h.bound(testKey("db")); v.Handle != first.Handle {
			t.Errorf("db has %+v, want the first volume", v)
		}
		if v := h.status(testKey("other")).Volume; v.Handle != third.Handle || v.Name != "pvc-uid-db-3" {
			t.Errorf("other has %+v, want the third volume", v)
		}
		if all, _ := h.c.AllParked(t.Context()); len(all) != 1 || all[0].Volume.Handle != second.Handle {
			t.Errorf("parked: %+v, want the second volume", all)
		}
		if err := h.c.Delete(t.Context(), testKey("db.removed-2"), true); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if got := b.names(); !slices.Equal(got, []string{first.Name, third.Name}) {
			t.Errorf("volumes %v", got)
		}
		if want := []string{"db pvc-uid-db", "db_2 pvc-uid-db-2", "db_3 pvc-uid-db-3"}; !slices.Equal(told, want) {
			t.Errorf("the driver is told %q, want %q", told, want)
		}
	})
}

// A volume is not moved from a claim that is listed, nor to a claim that is or has a volume, nor while something is to be
// made of it or uses it.
func TestMoveIsRefusedWhileItWouldHurt(t *testing.T) {
	bubble(t, newBackend(), func(t *testing.T, h *fakeNode) {
		v := h.retained(testClaim("a", mib))
		h.retained(testClaim("b", mib))
		refuse := func(from, to string, want error) {
			t.Helper()
			synctest.Wait()
			if err := h.c.Move(t.Context(), testKey(from), testKey(to), nil); !errors.Is(err, want) {
				t.Errorf("Move from %s to %s: %v, want %v", from, to, err, want)
			}
		}
		refuse("unknown", "c", ErrNotFound)
		refuse("a", "b", ErrTaken)
		h.c.DriverDown("strict.example.com")
		waiting := testClaim("waiting", mib)
		h.set(waiting)
		refuse("a", "waiting", ErrTaken)
		refuse("waiting", "c", ErrNotFound)
		h.usage.set(&h.usage.inUse, string(v.ID()), "pod default/old")
		refuse("a", "c", ErrInUse)
		h.usage.set(&h.usage.inUse, string(v.ID()), "")
		clone := testClaim("copy", mib)
		clone.Source = &DataSource{Claim: testKey("a")}
		h.set(clone)
		refuse("a", "c", ErrInUse)
		h.c.RemoveClaim(clone.Key)
		h.set(testClaim("a", mib))
		refuse("a", "c", ErrListed)
		h.c.RemoveClaim(testKey("a"))
		h.disk.fail(errDead)
		refuse("a", "c", errDead)
		h.disk.fail(nil)
		if s, kept, err := h.c.Kept(t.Context(), testKey("a")); err != nil || !kept || s.Volume.Handle != v.Handle {
			t.Errorf("after the refusals: %+v, %v, %v", s, kept, err)
		}
		if _, kept, _ := h.c.Kept(t.Context(), testKey("waiting")); kept {
			t.Error("a claim without a volume has kept one")
		}
		if err := h.c.Delete(t.Context(), testKey("a"), true); err != nil {
			t.Error(err)
		}
		refuse("a", "c", ErrNotFound)
	})
}

// A call of the volume that is in flight ends before the volume is moved.
func TestMoveWaitsForACall(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.retained(testClaim("a", mib))
		gate := make(chan struct{})
		b.set(func() {
			b.fault = onCall("ControllerExpandVolume", func(string, proto.Message) fault { return fault{wait: gate} })
		})
		h.set(testClaim("a", 2*mib))
		h.c.RemoveClaim(testKey("a"))
		if err := h.c.Move(t.Context(), testKey("a"), testKey("b"), nil); !errors.Is(err, ErrBusy) {
			t.Errorf("Move: %v, want %v", err, ErrBusy)
		}
		close(gate)
		synctest.Wait()
		h.mustMove("a", "b", nil)
		if v := h.status(testKey("b")).Volume; v.CapacityBytes != 2*mib {
			t.Errorf("%+v", v)
		}
	})
}

// A volume that is being cloned stays where its clone's record says: a deletion has to wait for the clone.
func TestAVolumeThatIsBeingClonedIsNotMoved(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		release := b.holdCreate("pvc-uid-copy")
		h.up()
		h.set(testClaim("a", mib))
		clone := testClaim("copy", mib)
		clone.Source = &DataSource{Claim: testKey("a")}
		h.set(clone)
		h.c.RemoveClaim(testKey("a"))
		err := h.c.Move(t.Context(), testKey("a"), testKey("b"), nil)
		if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "claim default/copy") {
			t.Errorf("Move: %v", err)
		}
		release()
		h.mustMove("a", "b", nil)
	})
}

// Two claims of one UID are still refused where no volume was moved.
func TestANamesakeThatWasNotMovedKeepsTheName(t *testing.T) {
	bubble(t, newBackend(), func(t *testing.T, h *fakeNode) {
		h.up()
		h.set(testClaim("a", mib))
		b := testClaim("b", mib)
		b.UID = "uid-a"
		h.set(b)
		if s := h.status(testKey("b")); !strings.Contains(s.Reason, "two claims cannot have the same UID") || s.Volume != nil {
			t.Errorf("%+v", s)
		}
		h.c.RemoveClaim(testKey("a"))
		synctest.Wait()
		h.mustMove("a", "parked", nil)
		if v := h.bound(testKey("b")); v.Name != "pvc-uid-a-2" {
			t.Errorf("after the other was moved: %+v", v)
		}
	})
}

// A daemon that dies at any commit of a life with moves leaves each volume with exactly one claim: the old or the new.
func TestCrashAtEveryCommitOfAMove(t *testing.T) {
	for _, torn := range []bool{false, true} {
		for n := 1; ; n++ {
			died := false
			t.Run(fmt.Sprintf("torn=%v/commit=%d", torn, n), func(t *testing.T) {
				bubble(t, newBackend(), func(_ *testing.T, h *fakeNode) {
					h.disk.dieAt, h.disk.torn = n, torn
					h.disk.onDeath = func() { died = true; h.cancel() }
					h.up()
					h.set(testClaim("a", mib))
					h.c.RemoveClaim(testKey("a"))
					_ = h.c.Move(h.t.Context(), testKey("a"), testKey("parked"), json.RawMessage("{}"))
					h.set(testClaim("a", mib))
					settleFor(time.Hour)
					h.end()
					h.disk.dieAt, h.disk.onDeath = 0, nil
					h.live()
					h.up()
					owners := map[string]Key{}
					for _, c := range h.c.Claims() {
						if c.Volume == nil {
							continue
						}
						if other, twice := owners[c.Volume.Handle]; twice {
							t.Errorf("claims %s and %s have %s", c.Claim, other, c.Volume.Handle)
						}
						owners[c.Volume.Handle] = c.Claim
					}
					h.set(testClaim("a", mib))
					h.bound(testKey("a"))
					if len(h.backend.names()) != len(h.c.Volumes()) {
						t.Errorf("the driver has %v, and claims %+v", h.backend.names(), h.c.Volumes())
					}
				})
			})
			if !died {
				if n < 4 {
					t.Errorf("the life has only %d commits", n)
				}
				break
			}
		}
	}
}

// Which record a move makes, for every pair of the claim that a volume was made for and the claim that gets it.
func TestMovedTo(t *testing.T) {
	a, b, c := testKey("a"), testKey("b"), testKey("c")
	for _, tt := range []struct{ is, madeFor, to, want Key }{
		{a, Key{}, b, a},
		{b, a, c, a},
		{b, a, a, Key{}},
	} {
		r := record{Claim: tt.is, MadeFor: tt.madeFor, Name: "pvc-a", Handle: "vol-1", Volume: state.Fact{Phase: state.Present}}
		got := r.movedTo(tt.to, json.RawMessage("{}"))
		if got.Claim != tt.to || got.MadeFor != tt.want || string(got.Parked) != "{}" || got.Name != r.Name || got.Handle != r.Handle {
			t.Errorf("%+v: got %+v", tt, got)
		}
	}
}
