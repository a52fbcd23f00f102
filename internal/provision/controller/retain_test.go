package controller

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
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

// If the answer to CreateVolume is lost, the volume may be one that was there before, with data. Retain holds for it too.
func TestAVolumeThatMayExistIsRetained(t *testing.T) {
	b := newBackend()
	b.fault = onCall("CreateVolume", func(string, proto.Message) fault {
		return fault{after: status.Error(codes.DeadlineExceeded, "too late")}
	})
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		claim := testClaim("a", mib)
		claim.Class.Retain = true
		h.set(claim)
		h.up()
		h.c.RemoveClaim(testKey("a"))
		if err := h.c.Delete(t.Context(), testKey("a"), false); !errors.Is(err, ErrRetained) {
			t.Errorf("Delete: %v, want %v", err, ErrRetained)
		}
		b.set(func() { b.fault = nil })
		settleFor(time.Hour)
		if len(b.names()) != 1 {
			t.Errorf("volumes %v", b.names())
		}
		err := h.c.Delete(t.Context(), testKey("a"), true)
		settleFor(time.Hour)
		if err != nil || len(b.names()) != 0 {
			t.Errorf("%v, and volumes %v after it was asked for", err, b.names())
		}
	})
}

// A person's policy of a made volume is followed, also after a crash: the record has it before the answer. A claim without
// a volume has none to set.
func TestAPersonSetsThePolicyOfAVolume(t *testing.T) {
	for _, crash := range []bool{false, true} {
		b := newBackend()
		bubble(t, b, func(t *testing.T, h *fakeNode) {
			if err := h.c.Reclaim(t.Context(), testKey("a"), Retain); !errors.Is(err, ErrNotFound) {
				t.Errorf("no such claim: %v", err)
			}
			h.set(testClaim("a", mib))
			if err := h.c.Reclaim(t.Context(), testKey("a"), Retain); !errors.Is(err, ErrNotFound) {
				t.Errorf("no volume: %v", err)
			}
			h.up()
			if err := h.c.Reclaim(t.Context(), testKey("a"), Retain); err != nil {
				t.Fatal(err)
			}
			if crash {
				h.end()
				h.live()
				h.set(testClaim("a", mib))
				h.up()
			}
			if got := h.bound(testKey("a")).ReclaimPolicy; got != Retain {
				t.Errorf("crash %v: the volume says %q", crash, got)
			}
			h.c.RemoveClaim(testKey("a"))
			if err := h.c.Delete(t.Context(), testKey("a"), false); !errors.Is(err, ErrRetained) {
				t.Errorf("crash %v: Delete: %v, want %v", crash, err, ErrRetained)
			}
			if err := h.c.Reclaim(t.Context(), testKey("a"), Delete); err != nil {
				t.Error(err)
			}
			if err := h.c.Delete(t.Context(), testKey("a"), false); err != nil {
				t.Error(err)
			}
			settleFor(time.Hour)
			if len(b.names()) != 0 {
				t.Errorf("volumes %v", b.names())
			}
		})
	}
}
