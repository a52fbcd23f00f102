package controller

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// life is what happens to two claims; any part of it may fail, since the process may die at any time.
func life(h *fakeNode) {
	h.up()
	h.set(testClaim("a", mib))
	b := testClaim("b", mib)
	b.Source = &DataSource{Claim: testKey("a")}
	h.set(b)
	if s, ok := h.c.Claim(testKey("a")); ok && s.Volume != nil {
		_, _ = h.c.Attach(h.t.Context(), volumeOf(*s.Volume))
		h.set(testClaim("a", 2*mib))
		h.set(gilded(testClaim("a", 2*mib), "gold"))
		_ = h.c.Detach(h.t.Context(), volumeOf(*s.Volume))
	}
	h.c.RemoveClaim(testKey("a"))
	_ = h.c.Delete(h.t.Context(), testKey("a"), false)
	settleFor(time.Hour)
}

// afterlife is the life after a crash: the wishes are the final ones of life, and nothing fails any more.
func afterlife(h *fakeNode) {
	h.t.Helper()
	h.end()
	h.disk.dieAt, h.disk.onDeath, h.backend.fault = 0, nil, nil
	h.live()
	h.up()
	b := testClaim("b", mib)
	b.Source = &DataSource{Claim: testKey("a")}
	if s, ok := h.c.Claim(testKey("b")); !ok || s.Volume == nil {
		h.set(testClaim("a", mib)) // a claim that is to be a clone needs its source
	}
	h.set(b)
	h.bound(testKey("b"))
	if s, ok := h.c.Claim(testKey("a")); ok {
		if s.Volume != nil && s.Phase != Deleting {
			if err := h.c.Detach(h.t.Context(), volumeOf(*s.Volume)); err != nil {
				h.t.Errorf("Detach: %v", err)
			}
		}
		h.c.RemoveClaim(testKey("a"))
		if err := h.c.Delete(h.t.Context(), testKey("a"), false); err != nil && !errors.Is(err, ErrNotFound) {
			h.t.Errorf("Delete: %v", err)
		}
	}
	settleFor(time.Hour)
	if got := h.backend.names(); !slices.Equal(got, []string{"pvc-uid-b"}) {
		h.t.Errorf("volumes in the end: %v, want pvc-uid-b alone", got)
	}
	if len(h.disk.records()) != 1 || h.disk.values["default/b"] == nil {
		h.t.Errorf("records in the end: %q", h.disk.values)
	}
	if got := h.c.Claims(); len(got) != 1 || got[0].Phase != Bound {
		h.t.Errorf("claims in the end: %+v", got)
	}
	h.end()
	h.live()
	h.up()
	calls := len(h.backend.calls())
	h.set(b)
	h.bound(testKey("b"))
	if got := h.backend.calls(); len(got) != calls {
		h.t.Errorf("calls after one more restart: %q", got[calls:])
	}
}

func TestCrashAtEveryCommitLosesAndDoublesNothing(t *testing.T) {
	for _, torn := range []bool{false, true} {
		for n := 1; ; n++ {
			died := false
			t.Run(fmt.Sprintf("torn=%v/commit=%d", torn, n), func(t *testing.T) {
				bubble(t, newBackend(), func(_ *testing.T, h *fakeNode) {
					h.disk.dieAt, h.disk.torn = n, torn
					h.disk.onDeath = func() { died = true; h.cancel() }
					life(h)
					afterlife(h)
				})
			})
			if !died {
				if n < 10 {
					t.Errorf("the life has only %d commits", n)
				}
				break
			}
		}
	}
}

func TestCrashDuringEveryCallLosesAndDoublesNothing(t *testing.T) {
	for _, effect := range []bool{false, true} {
		for n := 1; ; n++ {
			died := false
			t.Run(fmt.Sprintf("effect=%v/call=%d", effect, n), func(t *testing.T) {
				b := newBackend()
				bubble(t, b, func(_ *testing.T, h *fakeNode) {
					calls := 0
					b.fault = func(_ string, req proto.Message) fault {
						if req == nil {
							return fault{}
						}
						if calls++; calls != n {
							return fault{}
						}
						died = true
						h.cancel()
						if effect {
							return fault{after: status.Error(codes.Canceled, "died")}
						}
						return fault{before: status.Error(codes.Canceled, "died")}
					}
					life(h)
					afterlife(h)
				})
			})
			if !died {
				if n < 6 {
					t.Errorf("the life has only %d calls", n)
				}
				break
			}
		}
	}
}

// When the disk works again, the controller finds out what happened meanwhile.
func TestAnswersSurviveADiskThatFailsForAWhile(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		b.fault = onCall("CreateVolume", func(string, proto.Message) fault {
			h.disk.fail(errDead)
			return fault{}
		})
		h.up()
		h.set(testClaim("a", mib))
		h.bound(testKey("a"))
		settleFor(time.Minute)
		h.disk.fail(nil)
		settleFor(time.Minute)
		h.end()
		h.live()
		if v := h.c.Volumes(); len(v) != 1 || v[0].Handle != "vol-1" {
			t.Errorf("volumes after a restart: %+v", v)
		}
		wantCalls(t, b, "CreateVolume pvc-uid-a")
		synctest.Wait()
	})
}
