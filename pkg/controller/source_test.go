package controller

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
)

// holdCreate delays the CreateVolume of a volume until the returned function is called.
func (b *backend) holdCreate(name string) (release func()) {
	gate := make(chan struct{})
	b.fault = onCall("CreateVolume", func(_ string, req proto.Message) fault {
		if req.(*csi.CreateVolumeRequest).GetName() == name {
			return fault{wait: gate}
		}
		return fault{}
	})
	return func() { close(gate); synctest.Wait() }
}

// Until the journal records that a clone is made, its source stays: after a crash the next life asks for the clone again.
func TestASourceStaysUntilItsCloneIsInTheJournal(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		release := b.holdCreate("pvc-uid-copy")
		h.up()
		h.set(testClaim("a", mib))
		source := h.bound(testKey("a")).ID()
		clone := testClaim("copy", mib)
		clone.Source = &DataSource{Claim: testKey("a")}
		h.set(clone)
		h.c.RemoveClaim(testKey("a"))
		if err := h.c.Delete(t.Context(), testKey("a"), false); err != nil {
			t.Error(err)
		}
		h.disk.fail(errDead)
		release()
		h.disk.fail(nil)
		h.c.UsageChanged(source)
		synctest.Wait()
		if b.byHandle("vol-1") == nil {
			t.Error("the source is deleted, and the journal does not have the clone yet")
		}
		settleFor(time.Minute)
		if got := b.names(); !slices.Equal(got, []string{"pvc-uid-copy"}) {
			t.Errorf("volumes: %v", got)
		}
	})
}

// A deletion that waits for a claim goes on when the claim's volume is made, also if the claim names the snapshot by its
// handle.
func TestADeletionThatWaitsForARestoreGoesOn(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		release := b.holdCreate("pvc-uid-b")
		h.up()
		h.set(testClaim("a", mib))
		h.snap(testSnapshot("s", h.bound(testKey("a")).Handle))
		h.c.RemoveSnapshot(testKey("s"))
		h.c.DriverDown(b.name)
		if err := h.c.DeleteSnapshot(t.Context(), testKey("s"), false); err != nil {
			t.Error(err)
		}
		restored := testClaim("b", mib)
		restored.Source = &DataSource{SnapshotHandle: h.snapshot("s").Handle}
		h.set(restored)
		h.up()
		if s := h.snapshot("s"); !strings.Contains(s.Reason, "the volume of claim default/b is being made of it") {
			t.Errorf("the snapshot: %+v", s)
		}
		release()
		if got := h.c.Snapshots(); len(got) > 0 {
			t.Errorf("left: %+v", got)
		}
	})
}

// A claim that names a snapshot by its handle keeps it like one that names it by its name.
func TestAClaimThatNamesAHandleKeepsTheSnapshot(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		h.set(testClaim("a", mib))
		h.snap(testSnapshot("s", h.bound(testKey("a")).Handle))
		restored := testClaim("b", mib)
		restored.Source = &DataSource{SnapshotHandle: h.snapshot("s").Handle}
		restored.Refused = "it waits"
		h.set(restored)
		h.c.RemoveSnapshot(testKey("s"))
		if err := h.c.DeleteSnapshot(t.Context(), testKey("s"), false); !errors.Is(err, ErrInUse) {
			t.Errorf("DeleteSnapshot: %v, want %v", err, ErrInUse)
		}
	})
}
