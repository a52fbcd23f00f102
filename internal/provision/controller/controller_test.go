package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Sidecars: SP-11.
func TestClaimIsProvisionedOnce(t *testing.T) {
	bubble(t, newBackend(), func(t *testing.T, h *fakeNode) {
		h.set(testClaim("a", 256*mib))
		if s := h.status(testKey("a")); s.Phase != Pending || s.Reason != "driver strict.example.com is not registered" {
			t.Errorf("before the driver is up: %s, %q", s.Phase, s.Reason)
		}
		h.up()
		v := h.bound(testKey("a"))
		if v.Name != "pvc-uid-a" || v.Handle != "vol-1" || v.CapacityBytes != 256*mib || v.NodeBytes != 256*mib ||
			v.FSType != "xfs" || v.Context["made"] != "yes" || v.Topology[0]["zone"] != "a" || v.Released {
			t.Errorf("volume: %+v", v)
		}
		h.set(testClaim("a", 256*mib))
		settleFor(24 * time.Hour)
		wantCalls(t, h.backend, "CreateVolume pvc-uid-a")
	})
}

// Sidecars: SP-11.
func TestRestartMakesNoCall(t *testing.T) {
	bubble(t, newBackend(), func(t *testing.T, h *fakeNode) {
		h.set(testClaim("a", mib))
		h.up()
		before := h.bound(testKey("a"))
		h.end()
		h.live()
		if v := h.c.Volumes(); len(v) != 1 || v[0].Handle != before.Handle || !v[0].Released {
			t.Errorf("before a source spoke: %+v", v)
		}
		h.up()
		h.set(testClaim("a", mib))
		if after := h.bound(testKey("a")); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("after:  %+v\nbefore: %+v", after, before)
		}
		wantCalls(t, h.backend, "CreateVolume pvc-uid-a")
	})
}

func TestRemovedClaimKeepsItsDataAndBindsItAgain(t *testing.T) {
	bubble(t, newBackend(), func(t *testing.T, h *fakeNode) {
		h.set(testClaim("a", mib))
		h.up()
		h.c.RemoveClaim(testKey("a"))
		settleFor(24 * time.Hour)
		s := h.status(testKey("a"))
		if s.Phase != Released || s.Volume == nil || !strings.Contains(s.Volume.ReclaimNote, "csi-volmgr delete pvc a -n default") {
			t.Errorf("after removal: %+v", s)
		}
		again := testClaim("a", mib)
		again.UID = "another"
		h.set(again)
		if v := h.bound(testKey("a")); v.Handle != "vol-1" || v.Name != "pvc-uid-a" {
			t.Errorf("bound to %+v", v)
		}
		wantCalls(t, h.backend, "CreateVolume pvc-uid-a")
	})
}

// Sidecars: SP-37.
func TestDeleteIsRefusedWhileItWouldHurt(t *testing.T) {
	bubble(t, newBackend(), func(t *testing.T, h *fakeNode) {
		h.set(testClaim("a", mib))
		h.up()
		v := h.bound(testKey("a"))
		refuse := func(want error) {
			t.Helper()
			if err := h.c.Delete(t.Context(), testKey("a"), false); !errors.Is(err, want) {
				t.Errorf("Delete: %v, want %v", err, want)
			}
		}
		refuse(ErrListed)
		h.c.RemoveClaim(testKey("a"))
		h.usage.set(&h.usage.wanted, "default/a", "pod default/web")
		refuse(ErrInUse)
		h.usage.set(&h.usage.wanted, "default/a", "")
		h.usage.set(&h.usage.inUse, string(v.ID()), "pod default/old")
		refuse(ErrInUse)
		h.usage.set(&h.usage.inUse, string(v.ID()), "")
		h.usage.set(&h.usage.listed, string(v.ID()), "volume second")
		refuse(ErrInUse)
		h.usage.set(&h.usage.listed, string(v.ID()), "")
		if _, err := h.c.Attach(t.Context(), volumeOf(v)); err != nil {
			t.Fatal(err)
		}
		refuse(ErrInUse)
		if err := h.c.Delete(t.Context(), testKey("unknown"), false); !errors.Is(err, ErrNotFound) {
			t.Errorf("Delete of a claim that is not there: %v", err)
		}
		if slices.Contains(h.backend.calls(), "DeleteVolume vol-1") {
			t.Error("the volume was deleted")
		}
	})
}

// Sidecars: SP-36.
func TestDeleteRepeatsUntilDefinite(t *testing.T) {
	b := newBackend()
	faults := []fault{
		{before: status.Error(codes.Unavailable, "away")},
		{before: status.Error(codes.FailedPrecondition, "has snapshots")},
		{after: status.Error(codes.DeadlineExceeded, "lost")},
	}
	b.fault = func(call string, _ proto.Message) fault {
		if call != "DeleteVolume" || len(faults) == 0 {
			return fault{}
		}
		f := faults[0]
		faults = faults[1:]
		return f
	}
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.set(testClaim("a", mib))
		h.up()
		h.c.RemoveClaim(testKey("a"))
		if err := h.c.Delete(t.Context(), testKey("a"), false); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s := h.status(testKey("a"))
		if s.Phase != Deleting || s.Reason != "DeleteVolume: Unavailable: away" || s.Until.IsZero() || s.Retry.Attempts != 1 {
			t.Errorf("progress: %+v", s)
		}
		if v := h.c.Volumes(); len(v) != 0 {
			t.Errorf("a volume that is being deleted is still handed out: %+v", v)
		}
		settleFor(time.Hour)
		if got := h.c.Claims(); len(got) != 0 {
			t.Errorf("claims: %+v", got)
		}
		if len(h.disk.records()) != 0 || len(b.names()) != 0 {
			t.Errorf("left: records %v, volumes %v", h.disk.values, b.names())
		}
		wantCalls(t, b, "CreateVolume pvc-uid-a", "DeleteVolume vol-1", "DeleteVolume vol-1", "DeleteVolume vol-1", "DeleteVolume vol-1")
	})
}

// If the answer to CreateVolume is lost, the volume has no handle; to delete it, the controller has to repeat
// CreateVolume first.
//
// Sidecars: SP-36.
func TestDeleteOfAVolumeWhoseCreationIsInDoubt(t *testing.T) {
	b := newBackend()
	lost := true
	b.fault = func(call string, _ proto.Message) fault {
		if call == "CreateVolume" && lost {
			return fault{after: status.Error(codes.DeadlineExceeded, "lost")}
		}
		return fault{}
	}
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.set(testClaim("a", mib))
		h.up()
		h.c.RemoveClaim(testKey("a"))
		synctest.Wait()
		s := h.status(testKey("a"))
		if s.Phase != Released || !strings.Contains(s.Reason, "may exist") {
			t.Errorf("removed in doubt: %+v", s)
		}
		n := len(b.calls())
		b.set(func() { lost = false })
		if err := h.c.Delete(t.Context(), testKey("a"), false); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // at once: the request ends the earlier pause
		if len(h.c.Claims()) != 0 || len(b.names()) != 0 || len(h.disk.records()) != 0 {
			t.Errorf("left: claims %+v, volumes %v", h.c.Claims(), b.names())
		}
		if got := b.calls()[n:]; got[len(got)-1] != "DeleteVolume vol-1" {
			t.Errorf("calls: %q", got)
		}
	})
}

// A claim that never got a volume leaves no record.
func TestRefusedClaimIsForgottenWhenRemoved(t *testing.T) {
	b := newBackend()
	b.fault = func(string, proto.Message) fault {
		return fault{before: status.Error(codes.InvalidArgument, "unknown parameter")}
	}
	b.fault = onCall("CreateVolume", b.fault)
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.set(testClaim("a", mib))
		h.up()
		if s := h.status(testKey("a")); s.Phase != Pending || !strings.Contains(s.Reason, "unknown parameter") {
			t.Errorf("status: %+v", s)
		}
		h.c.RemoveClaim(testKey("a"))
		synctest.Wait()
		if len(h.c.Claims()) != 0 || len(h.disk.records()) != 0 {
			t.Errorf("left: %+v", h.c.Claims())
		}
	})
}

func onCall(name string, f func(string, proto.Message) fault) func(string, proto.Message) fault {
	return func(call string, req proto.Message) fault {
		if call != name {
			return fault{}
		}
		return f(call, req)
	}
}

// Whatever code a call ends with, with or without its effect, there is one volume in the end, and none after deletion
// (CSI 1.13, "Error Scheme").
//
// Sidecars: SA-02, SP-19, SR-04, SS-03.
func TestEveryCodeOfEveryCallHeals(t *testing.T) {
	calls := []string{"CreateVolume", "ControllerExpandVolume", "ControllerPublishVolume", "ControllerUnpublishVolume", "DeleteVolume"}
	for _, name := range calls {
		for code := codes.Code(1); code <= 17; code++ {
			for _, effect := range []bool{false, true} {
				if code == codes.NotFound && !effect && (name == "DeleteVolume" || name == "ControllerUnpublishVolume") {
					continue // a lie without consequences: the driver says that nothing is there
				}
				t.Run(fmt.Sprintf("%s/%s/effect=%v", name, code, effect), func(t *testing.T) {
					heals(t, name, code, effect)
				})
			}
		}
	}
}

func heals(t *testing.T, name string, code codes.Code, effect bool) {
	b := newBackend()
	left := 2
	b.fault = onCall(name, func(string, proto.Message) fault {
		if left == 0 {
			return fault{}
		}
		left--
		err := status.Error(code, "as told")
		if effect {
			return fault{after: err}
		}
		return fault{before: err}
	})
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		// After a final code such as UNIMPLEMENTED, the test has to ask for the retry.
		heal := func() {
			for range 3 {
				settleFor(time.Hour)
				h.c.RetryNow(testKey("a"))
			}
			synctest.Wait()
		}
		h.set(testClaim("a", mib))
		h.up()
		heal()
		v := h.bound(testKey("a"))
		if _, err := retry(func() (map[string]string, error) { return h.c.Attach(t.Context(), volumeOf(v)) }); err != nil {
			t.Fatalf("Attach: %v", err)
		}
		h.set(testClaim("a", 2*mib))
		heal()
		if v := h.bound(testKey("a")); v.CapacityBytes != 2*mib {
			t.Errorf("capacity %d, want %d", v.CapacityBytes, 2*mib)
		}
		if _, err := retry(func() (any, error) { return nil, h.c.Detach(t.Context(), volumeOf(v)) }); err != nil {
			t.Fatalf("Detach: %v", err)
		}
		h.c.RemoveClaim(testKey("a"))
		if err := h.c.Delete(t.Context(), testKey("a"), false); err != nil {
			t.Fatal(err)
		}
		heal()
		if len(h.c.Claims()) != 0 || len(b.names()) != 0 || len(h.disk.records()) != 0 {
			t.Errorf("left: claims %+v, volumes %v", h.c.Claims(), b.names())
		}
	})
}

func retry[T any](f func() (T, error)) (v T, err error) {
	for range 3 {
		if v, err = f(); err == nil {
			return v, nil
		}
		if _, ok := errors.AsType[*state.CallError](err); !ok {
			return v, fmt.Errorf("%w: not a CallError", err)
		}
	}
	return v, err
}

// Sidecars: SA-01, SA-03.
func TestAttachAndDetach(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.set(testClaim("a", mib))
		h.up()
		v := volumeOf(h.bound(testKey("a")))
		for range 2 {
			got, err := h.c.Attach(t.Context(), v)
			if err != nil || got["device"] != "/dev/vol-1" {
				t.Errorf("Attach: %v, %v", got, err)
			}
		}
		if err := h.c.Detach(t.Context(), v); err != nil {
			t.Errorf("Detach: %v", err)
		}
		if err := h.c.Detach(t.Context(), v); err != nil {
			t.Errorf("Detach again: %v", err)
		}
		// A volume that belongs to no claim here, and is gone.
		foreign := v
		foreign.Spec = &state.Spec{Driver: foreign.Spec.Driver, Handle: "elsewhere"}
		if err := h.c.Detach(t.Context(), foreign); err != nil {
			t.Errorf("Detach of a volume that is gone: %v", err)
		}
		if _, err := h.c.Attach(t.Context(), foreign); callCode(err) != "NotFound" {
			t.Errorf("Attach of a volume that is gone: %v", err)
		}
		h.c.DriverDown(b.name)
		if _, err := h.c.Attach(t.Context(), v); err == nil || !strings.Contains(err.Error(), "not registered") {
			t.Errorf("Attach without driver: %v", err)
		}
	})
}

func callCode(err error) string {
	if e, ok := errors.AsType[*state.CallError](err); ok {
		return e.Code
	}
	return ""
}

// Detach names the node that was attached, whatever the driver calls this node now.
//
// Sidecars: SA-05.
func TestDetachNamesTheNodeThatWasAttached(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.set(testClaim("a", mib))
		h.up()
		v := volumeOf(h.bound(testKey("a")))
		if _, err := h.c.Attach(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		d := b.driver()
		d.NodeID = "renamed"
		h.c.DriverUp(d)
		if err := h.c.Detach(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		if n := b.byHandle("vol-1").nodes; len(n) != 0 {
			t.Errorf("still attached to %v", n)
		}
	})
}

func TestAttachGivesUpWithItsCaller(t *testing.T) {
	b := newBackend()
	b.fault = onCall("ControllerPublishVolume", func(string, proto.Message) fault { return fault{wait: make(chan struct{})} })
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.set(testClaim("a", mib))
		h.up()
		v := volumeOf(h.bound(testKey("a")))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := h.c.Attach(ctx, v)
		if e, ok := errors.AsType[*state.CallError](err); !ok || e.Outcome != state.Uncertain {
			t.Errorf("Attach: %v, want an uncertain CallError", err)
		}
		synctest.Wait()
		if err := h.c.Detach(t.Context(), v); err != nil {
			t.Errorf("Detach: %v", err)
		}
	})
}

// Items: N-95.
// Sidecars: SR-01, SR-02, SR-05.
func TestExpandLeavesTheNodeItsPart(t *testing.T) {
	b := newBackend()
	b.nodeExpansion = true
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.set(testClaim("a", mib))
		h.up()
		id := h.bound(testKey("a")).ID()
		h.set(testClaim("a", 2*mib))
		if v := h.bound(testKey("a")); v.CapacityBytes != 2*mib || v.NodeBytes != mib {
			t.Errorf("after ControllerExpandVolume: capacity %d, node %d", v.CapacityBytes, v.NodeBytes)
		}
		h.c.NodeSize(id, 2*mib)
		h.c.NodeSize(id, mib) // an older report
		synctest.Wait()
		h.end()
		h.live()
		if v := h.c.Volumes()[0]; v.CapacityBytes != 2*mib || v.NodeBytes != 2*mib {
			t.Errorf("after NodeExpandVolume and a restart: capacity %d, node %d", v.CapacityBytes, v.NodeBytes)
		}
		wantCalls(t, b, "CreateVolume pvc-uid-a", "ControllerExpandVolume vol-1")
	})
}

// An answer that was lost, and one about an earlier growth, may have asked for the node's part, which a later answer
// does not take back.
//
// Sidecars: SR-02.
func TestALaterAnswerLeavesTheNodeItsPart(t *testing.T) {
	for _, lost := range []bool{true, false} {
		b := newBackend()
		b.nodeExpansion = !lost
		b.fault = onCall("ControllerExpandVolume", func(string, proto.Message) fault {
			if lost {
				return fault{after: status.Error(codes.DeadlineExceeded, "lost")}
			}
			return fault{}
		})
		bubble(t, b, func(t *testing.T, h *fakeNode) {
			h.set(testClaim("a", mib))
			h.up()
			h.set(testClaim("a", 2*mib))
			b.set(func() { b.nodeExpansion, b.fault = false, nil })
			h.set(testClaim("a", 3*mib))
			settleFor(time.Hour)
			if v := h.bound(testKey("a")); v.CapacityBytes != 3*mib || v.NodeBytes != mib {
				t.Errorf("lost %v: capacity %d, node %d", lost, v.CapacityBytes, v.NodeBytes)
			}
		})
	}
}

// Sidecars: SR-03.
func TestExpandByTheNodeAlone(t *testing.T) {
	b := newBackend()
	b.rpcs = b.rpcs[:1]
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.set(testClaim("a", mib))
		h.up()
		h.set(testClaim("a", 2*mib))
		if v := h.bound(testKey("a")); v.CapacityBytes != 2*mib || v.NodeBytes != mib {
			t.Errorf("capacity %d, node %d", v.CapacityBytes, v.NodeBytes)
		}
		wantCalls(t, b, "CreateVolume pvc-uid-a")
	})
}

// Items: N-98.
// Sidecars: SR-07.
func TestOfflineExpansionWaitsUntilNobodyUsesIt(t *testing.T) {
	b := newBackend()
	b.growth = []csi.PluginCapability_VolumeExpansion_Type{csi.PluginCapability_VolumeExpansion_OFFLINE}
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.set(testClaim("a", mib))
		h.up()
		v := h.bound(testKey("a"))
		if _, err := h.c.Attach(t.Context(), volumeOf(v)); err != nil {
			t.Fatal(err)
		}
		h.usage.set(&h.usage.inUse, string(v.ID()), "pod default/web")
		h.set(testClaim("a", 2*mib))
		if s := h.status(testKey("a")); !strings.Contains(s.Reason, "only while they are detached") {
			t.Errorf("attached: %q", s.Reason)
		}
		if err := h.c.Detach(t.Context(), volumeOf(v)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if s := h.status(testKey("a")); !strings.Contains(s.Reason, "in use by pod default/web") {
			t.Errorf("in use: %q", s.Reason)
		}
		h.usage.set(&h.usage.inUse, string(v.ID()), "")
		h.c.UsageChanged(v.ID())
		synctest.Wait()
		if v := h.bound(testKey("a")); v.CapacityBytes != 2*mib {
			t.Errorf("capacity %d", v.CapacityBytes)
		}
	})
}

// KEP-1790: a user who asked for too much may ask for less again.
//
// Sidecars: SR-04.
func TestRefusedExpansionIsTakenBack(t *testing.T) {
	b := newBackend()
	b.fault = onCall("ControllerExpandVolume", func(string, proto.Message) fault {
		return fault{before: status.Error(codes.OutOfRange, "too large")}
	})
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.set(testClaim("a", mib))
		h.up()
		h.set(testClaim("a", 1<<50))
		s := h.status(testKey("a"))
		if s.Phase != Bound || s.Reason != "ControllerExpandVolume: OutOfRange: too large" || s.Retry.Attempts != 1 {
			t.Errorf("refused: %+v", s)
		}
		h.set(testClaim("a", mib))
		if s := h.status(testKey("a")); s.Reason != "" {
			t.Errorf("taken back: %q", s.Reason)
		}
		h.set(testClaim("a", mib/2))
		if s := h.status(testKey("a")); !strings.Contains(s.Reason, "cannot shrink") {
			t.Errorf("shrunk: %q", s.Reason)
		}
	})
}

// CreateVolume also answers with a volume that was there before: one that a lost journal knew, or another node's, whose
// claim has the same name and so the same UID. If it does not fit, it may hold data. It is deleted only with the claim.
//
// Sidecars: SP-10, SP-31.
func TestAVolumeThatDoesNotFitIsKept(t *testing.T) {
	for name, spoil := range map[string]func(*csi.Volume){
		"too small": func(v *csi.Volume) { v.CapacityBytes = 1 },
		"elsewhere": func(v *csi.Volume) {
			v.AccessibleTopology = []*csi.Topology{{Segments: map[string]string{"zone": "b"}}}
		},
		"other content": func(v *csi.Volume) {
			v.ContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
				Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: "x"},
			}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBackend()
			bubble(t, b, func(t *testing.T, h *fakeNode) {
				h.set(testClaim("a", mib))
				h.up()
				h.bound(testKey("a"))
				h.end()
				h.disk = newDisk()
				h.live()
				b.set(func() { b.answer = spoil })
				h.set(testClaim("a", mib))
				h.up()
				settleFor(time.Hour)
				s := h.status(testKey("a"))
				if s.Phase != Pending || s.Volume != nil || !strings.Contains(s.Reason, "the driver ") || len(b.names()) != 1 {
					t.Errorf("status %+v, volumes %v", s, b.names())
				}
				b.set(func() { b.answer = nil })
				settleFor(time.Hour)
				if v := h.bound(testKey("a")); v.Handle != "vol-1" {
					t.Errorf("volume: %+v", v)
				}
			})
		})
	}
}

// A volume that does not fit is deleted where a person asks for that, and no pod gets it before.
//
// Sidecars: SP-10.
func TestAVolumeThatDoesNotFitIsDeletedWithItsClaim(t *testing.T) {
	b := newBackend()
	b.set(func() { b.answer = func(v *csi.Volume) { v.CapacityBytes = 1 } })
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.set(testClaim("a", mib))
		h.up()
		h.c.RemoveClaim(testKey("a"))
		if err := h.c.Delete(t.Context(), testKey("a"), false); err != nil {
			t.Fatal(err)
		}
		settleFor(time.Hour)
		if _, there := h.c.Claim(testKey("a")); there || len(b.names()) != 0 || len(h.disk.records()) != 0 {
			t.Errorf("claims %+v, volumes %v, records %v", h.c.Claims(), b.names(), h.disk.records())
		}
	})
}

// A volume_context that no record may hold is not stored: the claim waits and says so, and once the driver answers as it
// should, the claim gets the volume that was made. A volume of an earlier version keeps what it has.
func TestAttackAHugeContextIsNotStored(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		b.set(func() {
			b.answer = func(v *csi.Volume) { v.VolumeContext = map[string]string{"k": strings.Repeat("v", 3<<20)} }
		})
		h.set(testClaim("a", mib))
		h.up()
		settleFor(time.Hour)
		s := h.status(testKey("a"))
		if s.Phase != Pending || s.Volume != nil || !strings.Contains(s.Reason, "volume_context of 3145729 bytes") {
			t.Errorf("status: %+v", s)
		}
		for key, value := range h.disk.records() {
			if len(value) > maxContext {
				t.Errorf("record %s has %d bytes", key, len(value))
			}
		}
		b.set(func() { b.answer = nil })
		settleFor(time.Hour)
		v := h.bound(testKey("a"))
		if v.Handle != "vol-1" {
			t.Errorf("volume: %+v", v)
		}
		b.set(func() { b.padding = strings.Repeat("v", 3<<20) })
		if _, err := h.c.Attach(t.Context(), volumeOf(v)); err == nil || !strings.Contains(err.Error(), "publish_context of") {
			t.Errorf("Attach: %v", err)
		}
		if err := h.c.Detach(t.Context(), volumeOf(v)); err != nil {
			t.Errorf("Detach: %v", err)
		}
	})
}

// A claim must not take over a handle that another claim's volume has: deleting one would delete the other's data.
func TestHandleOfAnotherClaimIsRefused(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.set(testClaim("a", mib))
		h.up()
		b.set(func() { b.answer = func(v *csi.Volume) { v.VolumeId = "vol-1" } })
		h.set(testClaim("b", mib))
		if s := h.status(testKey("b")); s.Phase != Pending || !strings.Contains(s.Reason, "volume_id of claim default/a") {
			t.Errorf("status: %+v", s)
		}
		h.c.RemoveClaim(testKey("b"))
		if err := h.c.Delete(t.Context(), testKey("b"), false); err != nil {
			t.Errorf("Delete: %v", err)
		}
		settleFor(time.Hour)
		if slices.Contains(b.calls(), "DeleteVolume vol-1") {
			t.Error("the other claim's volume was deleted")
		}
		if got := h.c.Claims(); len(got) != 1 || got[0].Phase != Bound || len(h.disk.records()) != 1 {
			t.Errorf("claims: %+v; want that of the volume alone", got)
		}
	})
}

// If the driver gives a refused claim a volume of its own before the claim is deleted, that volume goes with it.
func TestARefusedClaimIsDeletedWithItsLaterVolume(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.set(testClaim("a", mib))
		h.up()
		b.set(func() { b.answer = func(v *csi.Volume) { v.VolumeId = "vol-1" } })
		h.set(testClaim("b", mib))
		b.set(func() { b.answer = nil })
		h.c.RemoveClaim(testKey("b"))
		if err := h.c.Delete(t.Context(), testKey("b"), false); err != nil {
			t.Errorf("Delete: %v", err)
		}
		settleFor(time.Hour)
		if got := b.names(); !slices.Equal(got, []string{"pvc-uid-a"}) || slices.Contains(b.calls(), "DeleteVolume vol-1") {
			t.Errorf("volumes: %v, calls %q", got, b.calls())
		}
	})
}

func TestTwoClaimsOfOneUIDDoNotShareAVolume(t *testing.T) {
	bubble(t, newBackend(), func(t *testing.T, h *fakeNode) {
		h.up()
		twin := testClaim("b", mib)
		twin.UID = "uid-a"
		h.c.SetClaim(testClaim("a", mib))
		h.set(twin)
		h.bound(testKey("a"))
		if s := h.status(testKey("b")); s.Phase != Pending || !strings.Contains(s.Reason, "cannot have the same UID") {
			t.Errorf("twin: %+v", s)
		}
		h.c.RemoveClaim(testKey("a"))
		if err := h.c.Delete(t.Context(), testKey("a"), false); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		h.bound(testKey("b"))
	})
}

// Sidecars: SP-40, SP-42.
func TestCloneWaitsForItsSourceAndKeepsItAlive(t *testing.T) {
	b := newBackend()
	gate := make(chan struct{})
	b.fault = onCall("CreateVolume", func(_ string, req proto.Message) fault {
		if req.(*csi.CreateVolumeRequest).GetName() == "pvc-uid-copy" {
			return fault{wait: gate}
		}
		return fault{}
	})
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		gate = make(chan struct{})
		h.up()
		clone := testClaim("copy", mib)
		clone.Source = &DataSource{Claim: testKey("a")}
		h.set(clone)
		if s := h.status(testKey("copy")); !strings.Contains(s.Reason, "its source, claim default/a, has no volume") {
			t.Errorf("without source: %q", s.Reason)
		}
		h.set(testClaim("a", mib))
		if s := h.status(testKey("copy")); s.Call != "CreateVolume" {
			t.Errorf("with source: %+v", s)
		}
		h.c.RemoveClaim(testKey("a"))
		if err := h.c.Delete(t.Context(), testKey("a"), false); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if s := h.status(testKey("a")); !strings.Contains(s.Reason, "being cloned for claim default/copy") {
			t.Errorf("source: %+v", s)
		}
		h.c.RemoveClaim(testKey("copy"))
		synctest.Wait()
		if s := h.status(testKey("a")); !strings.Contains(s.Reason, "for claim default/copy, and is no longer listed: list it again, or delete it") {
			t.Errorf("source, when the clone is withdrawn: %+v", s)
		}
		h.set(clone)
		if s := h.status(testKey("a")); strings.Contains(s.Reason, "no longer listed") {
			t.Errorf("source, when the clone is listed again: %+v", s)
		}
		close(gate)
		synctest.Wait()
		h.bound(testKey("copy"))
		if got := b.names(); !slices.Equal(got, []string{"pvc-uid-copy"}) {
			t.Errorf("volumes: %v", got)
		}
	})
}

// Sidecars: SA-07, SP-03.
func TestSecretsAreReadAtCallTimeAndNeverTold(t *testing.T) {
	b := newBackend()
	b.secret = map[string]string{"password": "hunter2-planted"}
	b.fault = onCall("CreateVolume", func(string, proto.Message) fault {
		return fault{before: status.Error(codes.Internal, "login refused")}
	})
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		claim := testClaim("a", mib)
		for _, p := range secretParameters {
			claim.Class.Parameters[reserved+p+"-name"] = "creds-${pvc.name}"
			claim.Class.Parameters[reserved+p+"-namespace"] = "${pvc.namespace}"
		}
		h.set(claim)
		h.up()
		if s := h.status(testKey("a")); !strings.Contains(s.Reason, "read secret default/creds-a") {
			t.Errorf("without the secret: %q", s.Reason)
		}
		wantCalls(t, b)
		h.secrets[state.SecretRef{Namespace: "default", Name: "creds-a"}] = b.secret
		h.c.RetryNow(testKey("a"))
		synctest.Wait()
		if s := h.status(testKey("a")); s.Reason != "CreateVolume: Internal: login refused" {
			t.Errorf("refused: %q", s.Reason)
		}
		b.set(func() { b.fault = nil })
		h.c.RetryNow(testKey("a"))
		synctest.Wait()
		v := h.bound(testKey("a"))
		if v.StageSecret.Name != "creds-a" || v.PublishSecret.Namespace != "default" || v.NodeExpandSecret.Name != "creds-a" {
			t.Errorf("secrets of the volume: %+v", v)
		}
		if _, err := h.c.Attach(t.Context(), volumeOf(v)); err != nil {
			t.Error(err)
		}
		claim.SizeBytes = 2 * mib
		h.set(claim)
		if err := h.c.Detach(t.Context(), volumeOf(v)); err != nil {
			t.Error(err)
		}
		for key, value := range h.disk.records() {
			if strings.Contains(string(value), "hunter2") {
				t.Errorf("record %s holds the secret: %s", key, value)
			}
		}
		if strings.Contains(h.logs.String(), "hunter2") {
			t.Error("the log holds the secret")
		}
	})
}

// What removes an attachment, a snapshot or a volume waits for a secret that cannot be read, and goes on without one
// that is gone.
//
// Sidecars: SA-08, SP-38, SS-15.
func TestRemovalsGoOnWithoutASecretThatIsGone(t *testing.T) {
	b := newBackend()
	b.secret = map[string]string{"password": "x"}
	ref := state.SecretRef{Namespace: "default", Name: "creds"}
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.secrets[ref] = b.secret
		claim := testClaim("a", mib)
		claim.Class.Parameters[reserved+"secret-name"], claim.Class.Parameters[reserved+"secret-namespace"] = ref.Name, ref.Namespace
		h.up()
		h.set(claim)
		v := volumeOf(h.bound(testKey("a")))
		s := testSnapshot("s", v.Spec.Value().Handle)
		s.Class.Parameters[reserved+snapshotterSecret+"-name"], s.Class.Parameters[reserved+snapshotterSecret+"-namespace"] = ref.Name, ref.Namespace
		h.snap(s)
		if _, err := h.c.Attach(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		b.set(func() { b.secret = nil })
		for _, step := range []struct {
			call string
			do   func()
		}{
			{"ControllerUnpublishVolume", func() { _ = h.c.Detach(t.Context(), v) }},
			{"DeleteSnapshot", func() {
				h.c.RemoveSnapshot(testKey("s"))
				_ = h.c.DeleteSnapshot(t.Context(), testKey("s"), false)
			}},
			{"DeleteVolume", func() {
				h.c.RemoveClaim(testKey("a"))
				_ = h.c.Delete(t.Context(), testKey("a"), false)
			}},
		} {
			delete(h.secrets, ref)
			before := b.calls()
			step.do()
			settleFor(time.Hour)
			wantCalls(t, b, before...)
			h.secrets[ref] = nil
			step.do()
			settleFor(time.Hour)
			if got := b.calls()[len(before):]; len(got) != 1 || !strings.HasPrefix(got[0], step.call) {
				t.Errorf("without the secret: calls %q, want one %s", got, step.call)
			}
		}
	})
	e := without(ErrNoSecret, callError("DeleteVolume", status.Error(codes.PermissionDenied, "who are you?")))
	if got := e.Err.Error(); got != "who are you? (called without its secret: not found)" || e.Code != "PermissionDenied" {
		t.Errorf("an error of such a call: %q, %s", got, e.Code)
	}
}

// Faults: A184.
func TestAValueThatTheJournalCannotReadIsNotTouched(t *testing.T) {
	bubble(t, newBackend(), func(t *testing.T, h *fakeNode) {
		h.end()
		h.disk.unreadable = map[string]string{"default/a": "checksum mismatch"}
		h.live()
		h.up()
		h.set(testClaim("a", mib))
		h.set(testClaim("b", mib))
		if s := h.status(testKey("a")); !strings.Contains(s.Reason, "checksum mismatch") {
			t.Errorf("reason: %q", s.Reason)
		} else if !s.Begun {
			t.Error("a claim whose record cannot be read counts as one that asked no driver for a volume")
		}
		h.c.RemoveClaim(testKey("a"))
		if err := h.c.Delete(t.Context(), testKey("a"), true); !errors.Is(err, ErrUnreadable) {
			t.Errorf("Delete: %v", err)
		}
		if s := h.status(testKey("b")); s.Phase != Bound {
			t.Errorf("another claim: %+v", s)
		}
	})
}

func TestUnreadableRecordIsNotTouched(t *testing.T) {
	bubble(t, newBackend(), func(t *testing.T, h *fakeNode) {
		h.end()
		h.disk.values["default/a"] = []byte(`{"version":99}`)
		h.live()
		h.up()
		h.set(testClaim("a", mib))
		if s := h.status(testKey("a")); !strings.Contains(s.Reason, "version 99") {
			t.Errorf("reason: %q", s.Reason)
		}
		h.c.RemoveClaim(testKey("a"))
		if err := h.c.Delete(t.Context(), testKey("a"), false); !errors.Is(err, ErrUnreadable) {
			t.Errorf("Delete: %v", err)
		}
		wantCalls(t, h.backend)
		if string(h.disk.values["default/a"]) != `{"version":99}` {
			t.Errorf("record: %s", h.disk.values["default/a"])
		}
	})
}

func TestNoCallWithoutADurableIntent(t *testing.T) {
	bubble(t, newBackend(), func(t *testing.T, h *fakeNode) {
		h.disk.fail(errors.New("disk full"))
		h.up()
		h.set(testClaim("a", mib))
		if s := h.status(testKey("a")); !strings.Contains(s.Reason, "disk full") {
			t.Errorf("reason: %q", s.Reason)
		}
		wantCalls(t, h.backend)
		h.disk.fail(nil)
		settleFor(time.Minute)
		h.bound(testKey("a"))
		h.c.RemoveClaim(testKey("a"))
		h.disk.fail(errors.New("disk full"))
		if err := h.c.Delete(t.Context(), testKey("a"), false); err == nil {
			t.Error("Delete: nil, though the wish is not durable")
		}
		settleFor(time.Minute)
		wantCalls(t, h.backend, "CreateVolume pvc-uid-a")
	})
}

// Sidecars: SA-15, SP-50, SR-16.
func TestCallsInFlightAreLimitedPerDriver(t *testing.T) {
	b := newBackend()
	gate := make(chan struct{})
	b.fault = onCall("CreateVolume", func(string, proto.Message) fault { return fault{wait: gate} })
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		gate = make(chan struct{})
		h.up()
		for i := range 20 {
			h.c.SetClaim(testClaim(fmt.Sprintf("c%02d", i), mib))
		}
		synctest.Wait()
		waiting := 0
		for _, s := range h.c.Claims() {
			if strings.Contains(s.Reason, "maximum of calls in flight") {
				waiting++
			}
		}
		if waiting != 16 {
			t.Errorf("%d claims wait for a slot, want 16", waiting)
		}
		// A claim that is removed while it waits gives its slot to the next.
		h.c.RemoveClaim(testKey("c04"))
		close(gate)
		synctest.Wait()
		if b.most != 4 {
			t.Errorf("%d calls at once, want 4", b.most)
		}
		if got := len(b.names()); got != 19 {
			t.Errorf("%d volumes, want 19", got)
		}
	})
}

// Sidecars: SP-49.
func TestBackoffEndsWithAnEvent(t *testing.T) {
	b := newBackend()
	broken := true
	b.fault = onCall("CreateVolume", func(string, proto.Message) fault {
		if broken {
			return fault{before: status.Error(codes.Unimplemented, "not today")}
		}
		return fault{}
	})
	for name, event := range map[string]func(h *fakeNode){
		"driver up":      func(h *fakeNode) { h.c.DriverUp(h.backend.driver()) },
		"class changed":  func(h *fakeNode) { c := testClaim("a", mib); c.Class.Parameters["kind"] = "hdd"; h.c.SetClaim(c) },
		"asked to retry": func(h *fakeNode) { h.c.RetryNow(testKey("a")) },
	} {
		t.Run(name, func(t *testing.T) {
			broken = true
			b.log, b.volumes = nil, map[string]*stored{}
			bubble(t, b, func(t *testing.T, h *fakeNode) {
				h.up()
				h.set(testClaim("a", mib))
				settleFor(24 * time.Hour)
				if got := len(b.calls()); got != 1 {
					t.Errorf("%d calls, want 1: UNIMPLEMENTED must not be retried", got)
				}
				b.set(func() { broken = false })
				event(h)
				synctest.Wait()
				h.bound(testKey("a"))
			})
		})
	}
}

// While the outcome is unknown, the controller repeats the same request; after a definite answer, it sends what is
// wanted now.
//
// Sidecars: SP-19.
func TestUnansweredCreateRepeatsTheSameRequest(t *testing.T) {
	b := newBackend()
	lost := status.Error(codes.DeadlineExceeded, "lost")
	var sizes []int64
	var answers []fault
	b.fault = onCall("CreateVolume", func(_ string, req proto.Message) fault {
		sizes = append(sizes, req.(*csi.CreateVolumeRequest).GetCapacityRange().GetRequiredBytes()/mib)
		if len(answers) == 0 {
			return fault{}
		}
		f := answers[0]
		answers = answers[1:]
		return f
	})
	answers = []fault{{before: lost}, {before: status.Error(codes.OutOfRange, "too small")}}
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		h.set(testClaim("a", mib))
		h.set(testClaim("a", 2*mib)) // an event: it repeats at once, with the old size
		h.set(testClaim("a", 3*mib)) // that was refused: now it sends the new size
		h.bound(testKey("a"))
		if want := []int64{1, 1, 3}; !slices.Equal(sizes, want) {
			t.Errorf("sizes asked for: %v MiB, want %v", sizes, want)
		}
	})
}

// A request that was never sent is not repeated: the corrected class counts.
func TestARequestThatWasNotSentIsNotRepeated(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		claim := testClaim("a", mib)
		claim.Class.Parameters = map[string]string{
			"csi.storage.k8s.io/provisioner-secret-name": "missing", "csi.storage.k8s.io/provisioner-secret-namespace": "default",
		}
		h.set(claim)
		wantCalls(t, b)
		h.set(testClaim("a", mib))
		h.bound(testKey("a"))
		wantCalls(t, b, "CreateVolume pvc-uid-a")
	})
}

// Items: N-13.
func TestDriverWithoutControllerServiceIsNotAsked(t *testing.T) {
	b := newBackend()
	b.services = nil
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.set(testClaim("a", mib))
		h.up()
		if s := h.status(testKey("a")); !strings.Contains(s.Reason, "no CREATE_DELETE_VOLUME") {
			t.Errorf("reason: %q", s.Reason)
		}
		wantCalls(t, b)
		if slices.Contains(b.asked, "ControllerGetCapabilities") {
			t.Errorf("asked: %q", b.asked)
		}
	})
}

func TestCapabilitiesAreAskedUntilToldAndThenNoMore(t *testing.T) {
	b := newBackend()
	left := 3
	b.fault = onCall("ControllerGetCapabilities", func(string, proto.Message) fault {
		if left == 0 {
			return fault{}
		}
		left--
		return fault{before: status.Error(codes.Unavailable, "starting")}
	})
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.set(testClaim("a", mib))
		h.up()
		if s := h.status(testKey("a")); !strings.Contains(s.Reason, "did not answer with its capabilities: ControllerGetCapabilities: Unavailable: starting") {
			t.Errorf("reason: %q", s.Reason)
		}
		settleFor(24 * time.Hour)
		h.bound(testKey("a"))
		if got := len(b.asked); got != 12 {
			t.Errorf("%d questions, want 12", got)
		}
	})
}

// An Attach that arrives just after the driver came up waits for its capabilities.
//
// Sidecars: SA-06.
func TestAttachWaitsForCapabilities(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.set(testClaim("a", mib))
		h.up()
		v := volumeOf(h.bound(testKey("a")))
		gate := make(chan struct{})
		b.fault = onCall("GetPluginCapabilities", func(string, proto.Message) fault { return fault{wait: gate} })
		h.up()
		foreign := v
		foreign.Spec = &state.Spec{Driver: foreign.Spec.Driver, Handle: "elsewhere"}
		errs := make(chan error, 2)
		for _, v := range []state.Volume{v, foreign} {
			go func() {
				_, err := h.c.Attach(t.Context(), v)
				errs <- err
			}()
		}
		synctest.Wait()
		if len(errs) != 0 {
			t.Error("Attach did not wait")
		}
		close(gate)
		synctest.Wait()
		got := []string{callCode(<-errs), callCode(<-errs)}
		slices.Sort(got)
		if !slices.Equal(got, []string{"", "NotFound"}) {
			t.Errorf("codes: %q", got)
		}
	})
}

func TestEverythingEndsWithRun(t *testing.T) {
	b := newBackend()
	b.fault = func(call string, _ proto.Message) fault {
		if call == "ControllerPublishVolume" {
			return fault{wait: make(chan struct{})}
		}
		return fault{}
	}
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.set(testClaim("a", mib))
		h.up()
		v := volumeOf(h.bound(testKey("a")))
		errs := make(chan error, 1)
		go func() {
			_, err := h.c.Attach(t.Context(), v)
			errs <- err
		}()
		synctest.Wait()
		h.end()
		if err := <-errs; err == nil {
			t.Error("Attach: nil after Run has returned")
		}
		if err := h.c.Delete(t.Context(), testKey("a"), false); !errors.Is(err, errStopped) {
			t.Errorf("Delete: %v", err)
		}
		h.live()
	})
}

func TestChangedTellsOnlyOfChanges(t *testing.T) {
	bubble(t, newBackend(), func(t *testing.T, h *fakeNode) {
		h.up()
		changed := h.c.Changed()
		h.set(testClaim("a", mib))
		select {
		case <-changed:
		default:
			t.Error("a new claim is no change")
		}
		id := h.bound(testKey("a")).ID()
		changed = h.c.Changed()
		h.c.UsageChanged(id)
		h.set(testClaim("a", mib))
		synctest.Wait()
		select {
		case <-changed:
			t.Error("told of a change where there was none")
		default:
		}
	})
}

func TestMisfitIsToldAndTheVolumeKept(t *testing.T) {
	bubble(t, newBackend(), func(t *testing.T, h *fakeNode) {
		h.up()
		h.set(testClaim("a", mib))
		for want, change := range map[string]func(*Claim){
			"volumeMode Block": func(c *Claim) { c.Mode = state.Block },
			"is of driver":     func(c *Claim) { c.Class.Provisioner = "other.example.com" },
			"access modes":     func(c *Claim) { c.AccessModes = []state.AccessMode{state.ReadWriteMany} },
		} {
			c := testClaim("a", mib)
			change(&c)
			h.set(c)
			if s := h.status(testKey("a")); s.Phase != Bound || !strings.Contains(s.Reason, want) {
				t.Errorf("%s: %s %q", want, s.Phase, s.Reason)
			}
		}
		wantCalls(t, h.backend, "CreateVolume pvc-uid-a")
	})
}
