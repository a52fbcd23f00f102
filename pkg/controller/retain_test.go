package controller

import (
	"errors"
	"testing"
	"testing/synctest"
)

// A volume whose class said Retain when it was made stays, with its data, when its claim is deleted, whatever the
// class says then. An explicit request deletes it. If the class said nothing, the volume is deleted.
//
// Faults: A151.
func TestAVolumeIsRetainedAsItsClassSaidWhenItWasMade(t *testing.T) {
	for _, retain := range []bool{true, false} {
		b := newBackend()
		bubble(t, b, func(t *testing.T, h *fakeNode) {
			claim := testClaim("a", mib)
			claim.Class.Retain = retain
			h.set(claim)
			h.up()
			claim.Class.Retain = !retain
			h.set(claim)
			want := Delete
			if retain {
				want = Retain
			}
			if got := h.status(testKey("a")).Volume.ReclaimPolicy; got != want {
				t.Errorf("the volume says %q, want %q", got, want)
			}
			h.c.RemoveClaim(testKey("a"))
			err := h.c.Delete(t.Context(), testKey("a"), false)
			synctest.Wait()
			if retain != errors.Is(err, ErrRetained) || retain != (len(b.volumes) == 1) {
				t.Fatalf("retain %v: %v, and %d volumes", retain, err, len(b.volumes))
			}
			if !retain {
				return
			}
			if s := h.status(testKey("a")); s.Phase != Released {
				t.Errorf("%+v", s)
			}
			if err := h.c.Delete(t.Context(), testKey("a"), true); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if len(b.volumes) != 0 {
				t.Errorf("%d volumes after it was asked for", len(b.volumes))
			}
		})
	}
}
