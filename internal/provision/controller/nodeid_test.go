package controller

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// foreignVolume returns a volume of the backend that no claim has, under the handle.
func foreignVolume(b *backend, handle string) state.Volume {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.volumes[handle] = &stored{handle: handle, nodes: map[string]bool{}}
	return state.Volume{ID: state.SharedID(b.name, handle), Spec: &state.Spec{
		Driver: b.name, Handle: handle, Name: handle, Mode: state.Filesystem, AccessModes: []state.AccessMode{state.ReadWriteOnce},
	}}
}

// renamed lets the driver come up with another node id.
func (h *fakeNode) renamed(id string) {
	d := h.backend.driver()
	d.NodeID = id
	h.c.DriverUp(d)
}

// A volume without a claim, as that of a PersistentVolume that a person wrote, is detached from the node id that it was
// attached with, whatever the driver calls this node since, also after a restart. While it is attached, the change is told.
func TestAVolumeWithoutAClaimIsDetachedFromTheNodeItWasAttachedTo(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.set(testClaim("a", mib))
		h.up()
		made, static := volumeOf(h.bound(testKey("a"))), foreignVolume(b, "static/1")
		for _, v := range []state.Volume{made, static} {
			if _, err := h.c.Attach(t.Context(), v); err != nil {
				t.Fatal(err)
			}
		}
		if others := h.c.OtherNodeIDs(); len(others) != 0 {
			t.Errorf("before a change: %v", others)
		}
		h.end()
		h.live()
		h.renamed("node-2")
		h.set(testClaim("a", mib))
		h.bound(testKey("a"))
		others := h.c.OtherNodeIDs()
		if len(others) != 1 || others[0].Was != "node-1" || others[0].Is != "node-2" || !slices.Equal(others[0].Handles, []string{"static/1", made.Spec.Handle}) {
			t.Fatalf("after a change: %+v", others)
		}
		for _, v := range []state.Volume{made, static} {
			if err := h.c.Detach(t.Context(), v); err != nil {
				t.Fatal(err)
			}
			if n := b.byHandle(v.Spec.Handle).nodes; len(n) != 0 {
				t.Errorf("%s is still attached to %v", v.Spec.Handle, n)
			}
		}
		synctest.Wait()
		if others := h.c.OtherNodeIDs(); len(others) != 0 {
			t.Errorf("after the detach: %v", others)
		}
		if n := h.disk.count(AttachmentBucket); n != 0 {
			t.Errorf("%d records are left", n)
		}
		if _, err := h.c.Attach(t.Context(), static); err != nil || !b.byHandle("static/1").nodes["node-2"] {
			t.Errorf("attached again: %v, to %v", err, b.byHandle("static/1").nodes)
		}
	})
}

// The node id is durable before the call: without it nothing is attached. What an earlier version attached has no record,
// and is detached from the node id that the driver says.
func TestNoVolumeIsAttachedWithoutARecordOfItsNode(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		static := foreignVolume(b, "static")
		h.disk.fail(errors.New("the disk is full"))
		if _, err := h.c.Attach(t.Context(), static); err == nil || !strings.Contains(err.Error(), "the disk is full") || len(b.byHandle("static").nodes) != 0 {
			t.Errorf("attached: %v, to %v", err, b.byHandle("static").nodes)
		}
		h.disk.fail(nil)
		b.byHandle("static").nodes["node-1"] = true
		if err := h.c.Detach(t.Context(), static); err != nil || len(b.byHandle("static").nodes) != 0 {
			t.Errorf("detached: %v, from %v", err, b.byHandle("static").nodes)
		}
	})
}

// What an operator has forgotten is not attached any longer: its node id is no problem, and a claim's volume is deleted.
func TestAForgottenAttachmentKeepsNoVolume(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.set(testClaim("a", mib))
		h.up()
		made, static := volumeOf(h.bound(testKey("a"))), foreignVolume(b, "static")
		for _, v := range []state.Volume{made, static} {
			if _, err := h.c.Attach(t.Context(), v); err != nil {
				t.Fatal(err)
			}
		}
		h.c.RemoveClaim(testKey("a"))
		if err := h.c.Delete(t.Context(), testKey("a"), false); !errors.Is(err, ErrInUse) {
			t.Errorf("deleted while it is attached: %v", err)
		}
		for _, v := range []state.Volume{made, static} {
			if err := h.c.ForgetAttachment(t.Context(), v); err != nil {
				t.Fatal(err)
			}
		}
		h.renamed("node-2")
		clear(b.byHandle(made.Spec.Handle).nodes) // as the operator has seen
		if err := h.c.Delete(t.Context(), testKey("a"), false); err != nil {
			t.Errorf("delete: %v", err)
		}
		settleFor(0)
		if v := b.byHandle(made.Spec.Handle); v != nil || len(h.c.OtherNodeIDs()) != 0 || h.disk.count(AttachmentBucket) != 0 {
			t.Errorf("left: %v, %v", v, h.c.OtherNodeIDs())
		}
	})
}
