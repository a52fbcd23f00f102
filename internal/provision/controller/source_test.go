package controller

import (
	"errors"
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
//
// Sidecars: SP-32, SP-45.
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
		if !slices.Contains(b.names(), "pvc-uid-a") {
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
//
// Sidecars: SP-32, SP-45, SS-12.
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

// A claim that may not name a snapshot by its handle is made nothing from it, and does not keep it from being
// deleted. What was begun goes on.
func TestADeniedHandleIsNotRestored(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		h.set(testClaim("a", mib))
		h.snap(testSnapshot("s", h.bound(testKey("a")).Handle))
		thief := testClaim("thief", mib)
		thief.Source = &DataSource{SnapshotHandle: h.snapshot("s").Handle, Denied: "not allowed"}
		h.set(thief)
		if s := h.status(testKey("thief")); s.Volume != nil || s.Begun || !s.Refused || s.Reason != "not allowed" ||
			s.Cause.Code != state.BadClaim {
			t.Errorf("the thief: %+v", s)
		}
		h.c.RemoveSnapshot(testKey("s"))
		if err := h.c.DeleteSnapshot(t.Context(), testKey("s"), false); err != nil {
			t.Errorf("the snapshot: %v", err)
		}
	})
}

// What was begun before a handle was denied is asked for again; another handle is not.
func TestADeniedHandleThatWasBegunGoesOn(t *testing.T) {
	begun := record{Name: "pvc-u", Volume: state.Fact{Phase: state.Entering}, Spec: spec{Driver: "d", Source: source{Snapshot: "h"}}}
	lost := begun
	lost.Unanswered = true
	for what, tc := range map[string]struct {
		rec    record
		handle string
		want   verb
	}{
		"nothing begun":                 {record{}, "h", noVerb},
		"begun with the handle":         {begun, "h", createVolume},
		"begun with another":            {begun, "other", noVerb},
		"an answer that was lost":       {lost, "h", createVolume},
		"lost, and then another handle": {lost, "other", createVolume},
	} {
		c := testClaim("a", mib)
		c.Class.Provisioner = "d"
		c.Source = &DataSource{SnapshotHandle: tc.handle, Denied: "not allowed"}
		f := facts{Driver: driverFacts{caps: caps{Controller: true, Create: true, Snapshot: true}}}
		o, h := next(tc.rec, want{Claim: c, Listed: true}, f, time.Now())
		if o.verb != tc.want || (h.reason == "not allowed") != (tc.want == noVerb) || o.verb == createVolume && o.spec.Source.Snapshot != "h" {
			t.Errorf("%s: %v %+v, %q", what, o.verb, o.spec.Source, h.reason)
		}
	}
	made := begun
	made.Volume.Phase, made.Handle = state.Present, "v"
	c := testClaim("a", 0)
	c.Class.Provisioner, c.AccessModes, c.Mode = "d", nil, ""
	c.Source = &DataSource{SnapshotHandle: "h", Denied: "not allowed"}
	if o, h := next(made, want{Claim: c, Listed: true}, facts{}, time.Now()); o.verb != noVerb || h.reason != "" {
		t.Errorf("a volume that is made: %v, %q", o.verb, h.reason)
	}
}

// A clone has its source's volumeMode and is not smaller. One that was begun before that was so is made.
//
// Sidecars: SP-41.
func TestACloneFitsItsSource(t *testing.T) {
	for _, tt := range []struct {
		why   string
		mode  state.Mode
		bytes int64
	}{
		{"", state.Filesystem, 2 * mib},
		{"", state.Filesystem, 3 * mib},
		{"asks for volumeMode Block, and the volume of its source, claim default/a, is Filesystem", state.Block, 2 * mib},
		{"asks for 2097151 bytes, and its source, claim default/a, for 2097152", state.Filesystem, 2*mib - 1},
	} {
		bubble(t, newBackend(), func(t *testing.T, h *fakeNode) {
			h.up()
			h.set(testClaim("a", 2*mib))
			clone := testClaim("b", tt.bytes)
			clone.Mode, clone.Source = tt.mode, &DataSource{Claim: testKey("a")}
			h.set(clone)
			if s := h.status(testKey("b")); (s.Phase == Bound) != (tt.why == "") || !strings.Contains(s.Reason, tt.why) {
				t.Errorf("%s of %d bytes: %s, %q", tt.mode, tt.bytes, s.Phase, s.Reason)
			}
		})
	}
	begun := record{Name: "v", Unanswered: true, Volume: state.Fact{Phase: state.Entering}}
	begun.Spec = spec{Driver: "strict.example.com", Source: source{Claim: testKey("a"), Volume: "vol-1"}}
	f := allCaps()
	f.Source.Problem = "it asks for less"
	small := testClaim("b", 1)
	small.Source = &DataSource{Claim: testKey("a")}
	if o, h := next(begun, want{Claim: small, Listed: true}, f, time.Time{}); o.verb != createVolume || o.spec.Source.Volume != "vol-1" {
		t.Errorf("begun: %v, %q", o.verb, h.reason)
	}
}

// A volume stays while a snapshot, a group snapshot or a clone of it is listed and not begun: what was to be kept would be
// lost. The same call that fails without a definite answer keeps it, too.
//
// Sidecars: SP-45, SS-14.
func TestAVolumeIsKeptForWhatIsToBeMadeOfIt(t *testing.T) {
	clone := testClaim("copy", mib)
	clone.Source = &DataSource{Claim: testKey("a")}
	for what, tc := range map[string]struct {
		list   func(h *fakeNode, volume string)
		remove func(c *Controller)
	}{
		"claim default/copy": {
			func(h *fakeNode, _ string) { h.set(clone) },
			func(c *Controller) { c.RemoveClaim(testKey("copy")) },
		},
		"snapshot default/s": {
			func(h *fakeNode, volume string) { h.snap(testSnapshot("s", volume)) },
			func(c *Controller) { c.RemoveSnapshot(testKey("s")) },
		},
		"group snapshot default/g": {
			func(h *fakeNode, volume string) {
				h.c.SetGroup(Group{
					Key: testKey("g"), UID: "uid-g", Members: []Member{{Claim: testKey("a"), Volume: volume}},
					Class: SnapshotClass{Name: "cuts", Driver: "strict.example.com"}, Freeze: time.Second,
				})
				synctest.Wait()
			},
			func(c *Controller) { c.RemoveGroup(testKey("g")) },
		},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBackend()
			bubble(t, b, func(t *testing.T, h *fakeNode) {
				h.up()
				h.set(testClaim("a", mib))
				volume := h.bound(testKey("a")).Handle
				b.fault = func(string, proto.Message) fault {
					return fault{before: status.Error(codes.ResourceExhausted, "full")}
				}
				tc.list(h, volume)
				needed, err := h.c.Needed(t.Context(), testKey("a"))
				if err != nil || needed != what {
					t.Errorf("needed for %q, %v; want %q", needed, err, what)
				}
				h.c.RemoveClaim(testKey("a"))
				if err := h.c.Delete(t.Context(), testKey("a"), false); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), what) {
					t.Errorf("Delete: %v, want %v with %s", err, ErrInUse, what)
				}
				b.set(func() { b.fault = nil })
				tc.remove(h.c)
				if err := h.c.Delete(t.Context(), testKey("a"), false); err != nil {
					t.Errorf("Delete: %v", err)
				}
				settleFor(time.Minute)
				if got := b.names(); len(got) != 0 {
					t.Errorf("left: %v", got)
				}
			})
		})
	}
}

// A claim of a snapshot asks for as much as the snapshot needs, and for the volumeMode of the snapshot's volume.
//
// Sidecars: SP-28.
func TestARestoreFitsItsSnapshot(t *testing.T) {
	bubble(t, newBackend(), func(t *testing.T, h *fakeNode) {
		h.up()
		h.set(testClaim("a", mib))
		snapshot := testSnapshot("s", h.bound(testKey("a")).Handle)
		snapshot.Mode = state.Filesystem
		h.snap(snapshot)
		for _, tt := range []struct {
			why   string
			mode  state.Mode
			bytes int64
		}{
			{"snapshot default/s needs a volume of at least 1048576", state.Filesystem, mib - 1},
			{"asks for volumeMode Block, and snapshot default/s is of a volume of mode Filesystem", state.Block, mib},
			{"", state.Filesystem, mib},
		} {
			c := testClaim("b", tt.bytes)
			c.Mode, c.Source = tt.mode, &DataSource{Snapshot: testKey("s")}
			h.set(c)
			if s := h.status(testKey("b")); (s.Phase == Bound) != (tt.why == "") || !strings.Contains(s.Reason, tt.why) {
				t.Errorf("%s of %d bytes: %s, %q", tt.mode, tt.bytes, s.Phase, s.Reason)
			}
		}
	})
}
