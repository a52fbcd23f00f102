package controller

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The backend notes overlapping calls for one volume. The test triggers everything that can begin a call while one is
// in flight.
//
// Sidecars: SR-05.
func TestOneCallInFlightPerClaim(t *testing.T) {
	b := newBackend()
	var gate chan struct{}
	b.fault = func(_ string, req proto.Message) fault {
		if req == nil {
			return fault{}
		}
		return fault{wait: gate}
	}
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		open := func() {
			held := gate
			gate = make(chan struct{})
			close(held)
			synctest.Wait()
		}
		gate = make(chan struct{})
		h.up()
		h.set(testClaim("a", mib))
		h.set(testClaim("a", 2*mib))
		h.c.RetryNow(testKey("a"))
		h.up()
		open() // CreateVolume ends; ControllerExpandVolume begins
		v := h.c.Volumes()[0]
		if s := h.status(testKey("a")); s.Call != "ControllerExpandVolume" || s.Reason != "" {
			t.Errorf("status: %+v", s)
		}
		done := make(chan error, 1)
		go func() {
			_, err := h.c.Attach(t.Context(), volumeOf(v))
			done <- err
		}()
		h.c.UsageChanged(v.ID())
		h.set(testClaim("a", 3*mib))
		open() // ControllerExpandVolume ends; ControllerPublishVolume begins
		open()
		if err := <-done; err != nil {
			t.Errorf("Attach: %v", err)
		}
		open()
		wantCalls(t, b, "CreateVolume pvc-uid-a", "ControllerExpandVolume vol-1", "ControllerPublishVolume vol-1", "ControllerExpandVolume vol-1")
		if v := h.bound(testKey("a")); v.CapacityBytes != 3*mib {
			t.Errorf("capacity %d", v.CapacityBytes)
		}
	})
}

// The controller makes no call for a caller that gave up waiting.
func TestCallerThatGaveUpIsForgotten(t *testing.T) {
	b := newBackend()
	gate := make(chan struct{})
	b.fault = onCall("ControllerExpandVolume", func(string, proto.Message) fault { return fault{wait: gate} })
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		gate = make(chan struct{})
		h.up()
		h.set(testClaim("a", mib))
		v := volumeOf(h.bound(testKey("a")))
		h.set(testClaim("a", 2*mib))
		ctx, cancel := context.WithCancel(t.Context())
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { _, err := h.c.Attach(ctx, v); first <- err }()
		synctest.Wait()
		go func() { second <- h.c.Detach(t.Context(), v) }()
		if err := <-second; err == nil || !strings.Contains(err.Error(), "another caller waits") {
			t.Errorf("second caller: %v", err)
		}
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("first caller: %v", err)
		}
		synctest.Wait()
		close(gate)
		synctest.Wait()
		wantCalls(t, b, "CreateVolume pvc-uid-a", "ControllerExpandVolume vol-1")
	})
}

func TestAnswerWithoutTheEffectIsAFailure(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		h.set(testClaim("a", mib))
		d := b.driver()
		d.Conn = lazy{b}
		h.c.DriverUp(d)
		h.set(testClaim("a", 2*mib))
		s := h.status(testKey("a"))
		if s.Reason != "ControllerExpandVolume: the driver answered OK with 0 bytes where 2097152 were asked for" || s.Volume.CapacityBytes != mib {
			t.Errorf("status: %+v", s)
		}
	})
}

// lazy is a driver that answers OK to ControllerExpandVolume and does nothing.
type lazy struct{ *backend }

func (l lazy) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	if _, ok := args.(*csi.ControllerExpandVolumeRequest); ok {
		return nil
	}
	return l.backend.Invoke(ctx, method, args, reply, opts...)
}

// A claim that waits for a slot at one driver, and then moves to another driver, gives the slot to the next claim.
func TestTurnThatIsNotTakenGoesToTheNext(t *testing.T) {
	b := newBackend()
	gate := make(chan struct{})
	b.fault = onCall("CreateVolume", func(string, proto.Message) fault { return fault{wait: gate} })
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		gate = make(chan struct{})
		h.up()
		for i := range 40 {
			h.c.SetClaim(testClaim(fmt.Sprintf("c%02d", i), mib))
		}
		synctest.Wait()
		for i := 4; i < 30; i++ {
			c := testClaim(fmt.Sprintf("c%02d", i), mib)
			c.Class.Provisioner = "other.example.com"
			h.set(c)
		}
		close(gate)
		synctest.Wait()
		if got := len(b.names()); got != 14 {
			t.Errorf("%d volumes, want 14: %v", got, b.names())
		}
	})
}

func TestCallersOfADriverThatIsReplacedOrGoneAreAnswered(t *testing.T) {
	b := newBackend()
	gate := make(chan struct{})
	b.fault = onCall("GetPluginCapabilities", func(string, proto.Message) fault { return fault{wait: gate} })
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		gate = make(chan struct{})
		h.up()
		v := state.Volume{Spec: &state.Spec{Driver: b.name, Handle: "elsewhere", Mode: state.Block}}
		errs := make(chan error, 1)
		go func() { _, err := h.c.Attach(t.Context(), v); errs <- err }()
		synctest.Wait()
		h.up() // the driver restarts: the caller keeps waiting
		if len(errs) != 0 {
			t.Fatalf("Attach: %v", <-errs)
		}
		h.c.DriverDown(b.name)
		if err := <-errs; err == nil || !strings.Contains(err.Error(), "not registered") {
			t.Errorf("Attach: %v", err)
		}
	})
}

// The controller ignores the capabilities that a driver reported before its restart.
func TestCapabilitiesOfAnEarlierLifeDoNotCount(t *testing.T) {
	old, b := newBackend(), newBackend()
	gate := make(chan struct{})
	old.rpcs = nil
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		gate = make(chan struct{})
		d := b.driver()
		d.Conn = slow{old, gate}
		h.c.DriverUp(d)
		synctest.Wait()
		h.up()
		close(gate)
		synctest.Wait()
		h.set(testClaim("a", mib))
		h.bound(testKey("a"))
	})
}

// slow is a driver that answers nothing before gate is closed, even if its caller gave up.
type slow struct {
	*backend
	gate <-chan struct{}
}

func (s slow) Invoke(_ context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	<-s.gate
	return s.backend.Invoke(context.Background(), method, args, reply, opts...)
}

// Sidecars: SA-15, SP-48, SR-16, SS-28.
func TestEveryCallHasADeadline(t *testing.T) {
	b := newBackend()
	b.fault = onCall("CreateVolume", func(string, proto.Message) fault { return fault{wait: make(chan struct{})} })
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		h.set(testClaim("a", mib))
		settleFor(DefaultDeadline)
		s := h.status(testKey("a"))
		if s.Retry.Code != "DeadlineExceeded" || s.Retry.Attempts != 1 {
			t.Errorf("retry: %+v", s.Retry)
		}
	})
}

// The code has a field of its own; the text is the driver's own.
// Items: N-33.
func TestErrorTextIsTheDriversOwn(t *testing.T) {
	raw := status.Error(codes.Internal, "no space")
	for _, err := range []error{raw, fmt.Errorf("wrapped: %w", raw), &state.CallError{Call: "X", Code: "Internal", Err: raw}} {
		if e := callError("X", err); e.Err.Error() != "no space" || e.Code != "Internal" {
			t.Errorf("%v: %v", err, e)
		}
	}
}

// Sidecars: SP-49, SR-10, SR-16.
func TestBackoffGrowsAndTellsSinceWhen(t *testing.T) {
	now := time.Unix(1e9, 0)
	e := &state.CallError{Outcome: state.Failed, Call: "CreateVolume", Err: errors.New("no")}
	var r state.Retry
	var waits []time.Duration
	for range 12 {
		r = addFailure(r, e, now)
		waits = append(waits, r.NotBefore.Sub(now))
		now = now.Add(time.Hour)
	}
	if !slices.IsSorted(waits) || waits[0] != firstWait || waits[11] != longestWait {
		t.Errorf("waits: %v", waits)
	}
	if !r.Since.Equal(time.Unix(1e9, 0)) || r.Attempts != 12 {
		t.Errorf("retry: %+v", r)
	}
	if w := backoff(1, state.Refused); w < time.Second || w > 10*time.Second {
		t.Errorf("after a refusal: %v, want seconds", w)
	}
	if w := backoff(math.MaxInt, state.Failed); w != longestWait {
		t.Errorf("after very many: %v", w)
	}
}

func TestNothingIsLeftBehindInMemory(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		h.set(testClaim("a", mib))
		clone := testClaim("copy", mib)
		clone.Source = &DataSource{Claim: testKey("a")}
		h.set(clone)
		for _, name := range []string{"copy", "a"} {
			h.bound(testKey(name))
			h.c.RemoveClaim(testKey(name))
			if err := h.c.Delete(t.Context(), testKey(name), false); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		never := testClaim("never", mib)
		never.Class.Provisioner = ""
		h.set(never)
		if s := h.status(testKey("never")); s.Reason != `StorageClass "fast" not found; to bind a PersistentVolume that exists, name it in the claim's spec.volumeName` {
			t.Errorf("reason: %q", s.Reason)
		}
		h.c.RemoveClaim(testKey("never"))
		synctest.Wait()
		h.end()
		c := h.c
		if len(c.claims.entries)+len(c.claims.names)+len(c.handles)+len(c.clones)+len(c.claims.dirty)+len(c.view.claims) != 0 {
			t.Errorf("left: %d entries, %d names, %d handles, %v clones, %d dirty, %d shown",
				len(c.claims.entries), len(c.claims.names), len(c.handles), c.clones, len(c.claims.dirty), len(c.view.claims))
		}
		h.live()
	})
}

// A requested deletion continues after a restart, and a claim of the same name that appears meanwhile gets a new
// volume.
//
// Sidecars: SP-36.
func TestDeletionGoesOnAfterARestart(t *testing.T) {
	b := newBackend()
	away := true
	b.fault = onCall("DeleteVolume", func(string, proto.Message) fault {
		if away {
			return fault{before: status.Error(codes.Unavailable, "away")}
		}
		return fault{}
	})
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		h.set(testClaim("a", mib))
		h.c.RemoveClaim(testKey("a"))
		if err := h.c.Delete(t.Context(), testKey("a"), false); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := h.c.Delete(t.Context(), testKey("a"), false); err != nil {
			t.Errorf("Delete again: %v", err)
		}
		h.end()
		h.live()
		select {
		case <-h.c.Loaded():
		default:
			t.Error("Loaded is open")
		}
		h.set(testClaim("a", mib))
		if s := h.status(testKey("a")); s.Phase != Deleting {
			t.Errorf("status: %+v", s)
		}
		b.set(func() { away = false })
		h.up()
		if v := h.bound(testKey("a")); v.Handle != "vol-2" {
			t.Errorf("volume: %+v", v)
		}
		wantCalls(t, b, "CreateVolume pvc-uid-a", "DeleteVolume vol-1", "DeleteVolume vol-1", "CreateVolume pvc-uid-a")
	})
}

// An answer that cannot be read says nothing about the volume, whatever code gRPC's client gives it. What may exist is
// not forgotten.
func TestAnAnswerThatCannotBeReadIsNoRefusal(t *testing.T) {
	b := newBackend()
	b.fault = onCall("CreateVolume", func(string, proto.Message) fault {
		return fault{after: status.Error(codes.ResourceExhausted, "grpc: received message larger than max (5000000 vs. 4194304)")}
	})
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.set(testClaim("a", mib))
		h.up()
		h.c.RemoveClaim(testKey("a"))
		synctest.Wait()
		b.set(func() { b.fault = nil })
		if err := h.c.Delete(t.Context(), testKey("a"), false); err != nil {
			t.Errorf("Delete: %v; the volume may exist", err)
		}
		settleFor(time.Hour)
		if got := b.names(); len(got) != 0 {
			t.Errorf("left: %v", got)
		}
	})
}

// People see whether a driver answered a call.
func TestACallWithoutAnAnswerIsShownAsSuch(t *testing.T) {
	for _, silent := range []bool{true, false} {
		b := newBackend()
		b.fault = onCall("CreateVolume", func(string, proto.Message) fault {
			return fault{before: &state.CallError{
				Outcome: state.Uncertain, Call: "CreateVolume", Code: "Unavailable", Unanswered: silent,
				Err: status.Error(codes.Unavailable, "no connection"),
			}}
		})
		bubble(t, b, func(t *testing.T, h *fakeNode) {
			h.set(testClaim("a", mib))
			h.up()
			if got := h.status(testKey("a")).Retry; got.Unanswered != silent || got.Error != "no connection" {
				t.Errorf("unanswered %v: %+v", silent, got)
			}
		})
	}
}
