package controller

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// A claim and a snapshot whose driver is gone for good are forgotten without a call, also by the next daemon. What may be left
// is told. Another author's claim of that driver stays, and is deleted when the driver is back after all.
func TestWhatHasNoDriverIsForgotten(t *testing.T) {
	bubble(t, newBackend(), func(t *testing.T, h *fakeNode) {
		h.up()
		for _, name := range []string{"a", "theirs"} {
			h.set(testClaim(name, mib))
		}
		v := h.bound(testKey("a"))
		h.bound(testKey("theirs"))
		h.c.SetSnapshot(testSnapshot("s", v.Handle))
		settleFor(time.Minute)
		h.c.DriverDown(v.Driver)
		refuse := func(gone bool, want error, words string) {
			t.Helper()
			_, claim := h.c.ForgetClaim(t.Context(), testKey("a"), gone)
			_, snapshot := h.c.ForgetSnapshot(t.Context(), testKey("s"), gone)
			for _, err := range []error{claim, snapshot} {
				if !errors.Is(err, want) || !strings.Contains(err.Error(), words) {
					t.Errorf("%v, want %v with %q", err, want, words)
				}
			}
		}
		refuse(true, ErrListed, "")
		h.c.RemoveSnapshot(testKey("s"))
		h.c.RemoveClaim(testKey("a"))
		for _, err := range []error{h.c.DeleteSnapshot(t.Context(), testKey("s"), false), h.c.Delete(t.Context(), testKey("a"), false)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		settleFor(time.Hour)
		refuse(false, ErrNotForgotten, "--driver-gone")
		h.usage.set(&h.usage.inUse, string(v.ID()), "pod default/old")
		if _, err := h.c.ForgetClaim(t.Context(), testKey("a"), true); !errors.Is(err, ErrInUse) {
			t.Errorf("while a pod has it: %v", err)
		}
		h.usage.set(&h.usage.inUse, string(v.ID()), "")
		h.disk.fail(errDead)
		refuse(true, errDead, "")
		h.disk.fail(nil)
		before := len(h.backend.calls())
		if left, err := h.c.ForgetSnapshot(t.Context(), testKey("s"), true); err != nil || !strings.Contains(left, `of driver strict.example.com`) {
			t.Errorf("snapshot: %q, %v", left, err)
		}
		left, err := h.c.ForgetClaim(t.Context(), testKey("a"), true)
		if err != nil || !strings.Contains(left, "pvc-uid-a") || !strings.Contains(left, v.Handle) {
			t.Errorf("claim: %q, %v", left, err)
		}
		refuse(true, ErrNotFound, "")
		h.end()
		h.live()
		refuse(true, ErrNotFound, "")
		h.set(testClaim("theirs", mib))
		h.up()
		settleFor(time.Hour)
		if got := h.backend.calls()[before:]; slices.ContainsFunc(got, func(c string) bool { return strings.HasPrefix(c, "Delete") }) {
			t.Errorf("calls: %v", got)
		}
		h.bound(testKey("theirs"))
	})
}

// While its driver is there, a claim is forgotten only if its deletion does not end, and not during a call.
func TestAClaimWithADriverIsForgottenIfItsDeletionDoesNotEnd(t *testing.T) {
	bubble(t, newBackend(), func(t *testing.T, h *fakeNode) {
		h.up()
		v := h.retained(testClaim("a", mib))
		for _, gone := range []bool{false, true} {
			if _, err := h.c.ForgetClaim(t.Context(), v.Claim, gone); !errors.Is(err, ErrNotForgotten) {
				t.Errorf("before its deletion: %v", err)
			}
		}
		if err := h.c.Delete(t.Context(), v.Claim, true); err != nil {
			t.Fatal(err)
		}
		if _, err := h.c.ForgetClaim(t.Context(), v.Claim, false); !errors.Is(err, ErrNotForgotten) && !errors.Is(err, ErrNotFound) {
			t.Errorf("while DeleteVolume is in flight: %v", err)
		}
	})
}
