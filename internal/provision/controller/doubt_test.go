package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

var phases = []state.Phase{state.Absent, state.Entering, state.Present, state.Leaving}

// waitsForAccept reports whether h says which command ends the wait for an operator, in words and for programs.
func waitsForAccept(h held) bool {
	return strings.Contains(h.reason, "csi-volmgr journal accept --reason=TEXT") && h.cause.Code == state.RecordsLost && h.until.IsZero()
}

// A deletion that was read from a journal that may have lost newer records makes no step, whatever else holds: neither a
// call that deletes, nor one that makes what is to be deleted, nor the end of the record. A detach that the loop asks for
// is not delayed by it. Without a deletion in the record, the doubt changes nothing.
//
// Faults: A186.
func TestADoubtedDeletionMakesNoStep(t *testing.T) {
	now := time.Now()
	up := driverFacts{caps: caps{Controller: true, Create: true, Expand: true, Snapshot: true, Group: true}}
	n := 0
	for _, phase := range phases {
		for bits := range 1 << 6 {
			on := func(i int) bool { return bits>>i&1 == 1 }
			f := facts{Driver: up}
			r := record{Claim: testKey("a"), Name: "pvc-a", Handle: "h", Delete: on(0), Volume: state.Fact{Phase: phase}}
			if on(1) {
				f.Driver = driverFacts{Problem: "away"}
			}
			if on(2) {
				f.InUse = "pod x"
			}
			w := want{Listed: on(3), Claim: testClaim("a", mib)}
			if on(4) {
				w.Attach = detachVolume
			}
			if on(5) {
				r.Attach = state.Present
			}
			sure, sureHeld := next(r, w, f, now)
			f.Doubt = true
			o, h := next(r, w, f, now)
			n++
			deletes := r.Delete || phase == state.Leaving
			switch {
			case deletes && w.Attach == noVerb && (o.verb != noVerb || !waitsForAccept(h)):
				t.Errorf("%v, %+v: %v, held %q", r, w, o.verb, h.reason)
			case (!deletes || w.Attach == detachVolume) && (o.verb != sure.verb || h.reason != sureHeld.reason):
				t.Errorf("%v, %+v: %v, held %q; without doubt %v, %q", r, w, o.verb, h.reason, sure.verb, sureHeld.reason)
			}
		}
	}
	if n != 256 {
		t.Errorf("%d states", n)
	}
	for _, phase := range phases {
		for _, del := range []bool{false, true} {
			for _, used := range []string{"", "claim x"} {
				s := snapshotRecord{Snapshot: testKey("s"), Name: "s", Handle: "h", Delete: del, Content: state.Fact{Phase: phase}}
				g := groupRecord{Group: testKey("g"), Name: "g", Handle: "h", Delete: del, Content: state.Fact{Phase: phase}}
				for _, d := range []driverFacts{up, {Problem: "away"}} {
					so, sh := nextSnapshot(s, nil, snapshotFacts{Driver: d, Used: used, Doubt: true}, now)
					gr, gh := nextGroup(g, nil, groupFacts{Driver: d, Used: used, Doubt: true}, now)
					if deletes := del || phase == state.Leaving; deletes != waitsForAccept(sh) || deletes && so.verb != noSnapshotVerb ||
						deletes != waitsForAccept(gh) || deletes && gr.verb != noGroupVerb {
						t.Errorf("%v, delete %v: snapshot %v, %q; group %v, %q", phase, del, so.verb, sh.reason, gr.verb, gh.reason)
					}
				}
			}
		}
	}
}

// After a start with a journal that may have lost records, a deletion of an earlier start waits, and so does what a source
// lists under its name. Asked for again, one is carried out; after the loss is accepted, all are. A deletion that is asked
// for since the start does not wait.
//
// Faults: A186.
func TestADeletionOfALostPastWaits(t *testing.T) {
	bubble(t, newBackend(), func(t *testing.T, h *fakeNode) {
		h.up()
		for _, name := range []string{"old", "again", "now"} {
			h.set(testClaim(name, mib))
			h.bound(testKey(name))
		}
		h.c.DriverDown(h.backend.driver().Name) // the deletions wait for the driver
		for _, name := range []string{"old", "again"} {
			h.c.RemoveClaim(testKey(name))
			if err := h.c.Delete(t.Context(), testKey(name), false); err != nil {
				t.Fatal(err)
			}
		}
		settleFor(time.Minute)
		h.end()
		lost := true
		h.lost = func() bool { return lost }
		h.live()
		h.up()
		h.set(testClaim("now", mib))
		h.set(testClaim("again", mib)) // made and listed again, as a manifest does
		settleFor(time.Hour)
		if got := h.backend.names(); len(got) != 3 {
			t.Fatalf("volumes: %v", got)
		}
		if s, _ := h.c.Claim(testKey("old")); s.Phase != Deleting || s.Cause.Code != state.RecordsLost || !strings.Contains(s.Reason, "csi-volmgr journal accept") {
			t.Errorf("old: %+v", s)
		}
		if err := h.c.Delete(t.Context(), testKey("again"), false); err == nil {
			t.Error("a listed claim is deleted")
		}
		for _, name := range []string{"again", "now"} {
			h.c.RemoveClaim(testKey(name))
			if err := h.c.Delete(t.Context(), testKey(name), false); err != nil {
				t.Error(err)
			}
		}
		settleFor(time.Hour)
		if got := h.backend.names(); len(got) != 1 || got[0] != "pvc-uid-old" {
			t.Errorf("volumes after two were asked for: %v", got)
		}
		lost = false
		h.c.LossAccepted()
		settleFor(time.Hour)
		if got := h.backend.names(); len(got) != 0 || len(h.c.Claims()) != 0 {
			t.Errorf("after the loss was accepted: %v, %+v", got, h.c.Claims())
		}
	})
}

// A whole group's record was lost, and its calls are repeated: CreateSnapshot gives the earlier snapshots, and one call fails.
// The snapshots of the others were made before, and may be in use; they are not deleted before the loss is accepted.
//
// Faults: A186.
func TestAGroupOfALostPastIsNotTornApart(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.c.cfg.Freezer = &stills{}
		h.up()
		g := h.pair()
		h.setGroup(g)
		if s := h.group("g"); s.Phase != Ready || b.made() != 2 {
			t.Fatalf("%+v, %d at the driver", s, b.made())
		}
		h.end()
		clear(h.disk.groups)
		lost := true
		h.lost = func() bool { return lost }
		b.set(func() {
			b.fault = onCall("CreateSnapshot", func(_ string, req proto.Message) fault {
				if lost && req.(*csi.CreateSnapshotRequest).GetSourceVolumeId() == "vol-2" {
					return fault{before: status.Error(codes.ResourceExhausted, "full")}
				}
				return fault{}
			})
		})
		h.live()
		h.c.cfg.Freezer = &stills{}
		h.up()
		h.setGroup(g)
		settleFor(time.Hour)
		if s := h.group("g"); b.made() != 2 || !s.Doubted || !strings.Contains(s.Reason, "csi-volmgr journal accept") {
			t.Errorf("before the loss is accepted: %+v, %d at the driver", s, b.made())
		}
		lost = false
		h.c.LossAccepted()
		settleFor(time.Hour)
		if s := h.group("g"); s.Phase != Ready || b.made() != 2 {
			t.Errorf("once it is: %+v, %d at the driver", s, b.made())
		}
	})
}
