package controller

import (
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
)

// shared is one of the records of a driver's snapshot; id is its group_snapshot_id.
type shared struct {
	sharer
	id string
}

// see returns all as s sees them.
func (s shared) see(all []shared) (others []sharer) {
	for _, o := range all {
		if o.key == s.key {
			continue
		}
		o.whole = s.group && o.group && o.id == s.id
		others = append(others, o.sharer)
	}
	return others
}

// Two snapshots and three group snapshots, two of them of one group_snapshot_id, may be records of one of a
// driver's snapshots. Whatever is wanted, kept, deleted or half deleted of them, and in whatever order their names are,
// and although all decide at once: the driver's snapshot goes only when no record stays that has it; if all records are
// to go, they go, and it goes with them; and a deletion waits only for something that a person can end.
//
// Sidecars: SS-04.
func TestTheLastRecordTakesTheDriversSnapshot(t *testing.T) {
	kinds := []shared{{}, {}, {sharer{group: true}, "1"}, {sharer{group: true}, "1"}, {sharer{group: true}, "2"}}
	states := []string{"none", "kept", "deleting", "leaving", "wanted"}
	var orders [][]int
	var permute func(picked []int)
	permute = func(picked []int) {
		if len(picked) == len(kinds) {
			orders = append(orders, slices.Clone(picked))
		}
		for i := range kinds {
			if !slices.Contains(picked, i) {
				permute(append(picked, i))
			}
		}
	}
	permute(nil)
	checked := 0
	var walk func(picked []string)
	walk = func(picked []string) {
		if len(picked) < len(kinds) {
			for _, s := range states {
				if s != "wanted" || !kinds[len(picked)].group {
					walk(append(slices.Clone(picked), s))
				}
			}
			return
		}
		for _, order := range orders {
			var all []shared
			for i, s := range picked {
				one := kinds[i]
				one.key = testKey(fmt.Sprint(order[i]))
				one.wanted, one.leaving, one.deleting = s == "wanted", s == "leaving", s == "leaving" || s == "deleting"
				if s != "none" {
					all = append(all, one)
				}
			}
			checked++
			checkFates(t, fmt.Sprint(picked, order), all)
		}
	}
	walk(nil)
	if checked != 5*5*4*4*4*120 {
		t.Errorf("%d cases", checked)
	}
}

func checkFates(t *testing.T, what string, all []shared) {
	t.Helper()
	staying := slices.ContainsFunc(all, func(s shared) bool { return !s.deleting })
	gone := len(all) == 0
	for moved := true; moved; {
		moved = false
		var left []shared
		for _, s := range all {
			f, by := s.fateOf(s.see(all))
			switch {
			case !s.deleting || f == waits:
				if s.deleting && !by.wanted && by.deleting && !slices.ContainsFunc(all, func(o shared) bool { return o.key == by.key }) {
					t.Errorf("%s: %v waits for %v, which is not there", what, s.sharer, by)
				}
				left = append(left, s)
				continue
			case f == goes:
				gone = true
				for _, o := range all {
					if o.key != s.key && (!o.deleting && !o.wanted || o.wanted && !s.leaving || o.group && !s.group) {
						t.Errorf("%s: %v takes the snapshot of %v", what, s.sharer, o.sharer)
					}
				}
			}
			moved = true
		}
		all = left
	}
	if !staying && (len(all) > 0 || !gone) {
		t.Errorf("%s: left %+v, gone %v", what, all, gone)
	}
	for _, s := range all {
		_, by := s.fateOf(s.see(all))
		if s.deleting && by.deleting {
			t.Errorf("%s: %v waits for %v, which waits too", what, s.sharer, by)
		}
	}
}

// namedTwin returns a snapshot that a person named by the handle of another.
func namedTwin(name, handle string) Snapshot {
	s := testSnapshot(name, "")
	s.Claim, s.Handle = Key{}, handle
	return s
}

func (h *fakeNode) deleteSnap(name string) {
	h.t.Helper()
	h.c.RemoveSnapshot(testKey(name))
	if err := h.c.DeleteSnapshot(h.t.Context(), testKey(name), true); err != nil {
		h.t.Errorf("delete %s: %v", name, err)
	}
	settleFor(time.Minute)
}

// Two records have one of a driver's snapshots, after a restart too. The first that is deleted leaves the snapshot to
// the other, which stays Ready; the last takes it. So it is for two that are deleted while the driver is away.
func TestDeletingOneOfTwoRecordsLeavesTheSnapshot(t *testing.T) {
	for _, first := range []string{"s", "z", "both"} {
		b := newBackend()
		bubble(t, b, func(t *testing.T, h *fakeNode) {
			h.up()
			h.set(testClaim("a", mib))
			h.snap(testSnapshot("s", h.bound(testKey("a")).Handle))
			handle := h.snapshot("s").Handle
			h.snap(namedTwin("z", handle))
			if s := h.snapshot("z"); s.Phase != Ready || s.Handle != handle {
				t.Fatalf("%+v", s)
			}
			h.end()
			h.live()
			h.up()
			if first == "both" {
				h.c.DriverDown("strict.example.com")
				h.deleteSnap("z")
				h.deleteSnap("s")
				h.up()
			} else {
				h.deleteSnap(first)
				other := strings.Trim("sz", first)
				if s := h.snapshot(other); b.made() != 1 || s.Handle != handle || !s.Ready {
					t.Errorf("%s first: %d at the driver, %+v", first, b.made(), s)
				}
				h.deleteSnap(other)
			}
			settleFor(time.Hour)
			if b.made() != 0 || len(h.c.Snapshots())+h.disk.count(SnapshotBucket) != 0 {
				t.Errorf("%s first: %d at the driver, %+v", first, b.made(), h.c.Snapshots())
			}
		})
	}
}

// The driver knows a snapshot by the name that it was made under, and would give it to a new one of that name: so while
// another record has it, and while it is being deleted, none is made under the name, after a restart too. The earlier
// one is not listed, and cannot be deleted again. A snapshot of that name by a handle is not held up.
func TestADriversSnapshotIsNotGivenToTheNextOfItsName(t *testing.T) {
	b := newBackend()
	b.rpcs = append(b.rpcs, csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS)
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		h.set(testClaim("a", mib))
		volume := h.bound(testKey("a")).Handle
		h.snap(testSnapshot("s", volume))
		handle := h.snapshot("s").Handle
		h.snap(namedTwin("z", handle))
		h.deleteSnap("s")
		if all := h.c.Snapshots(); len(all) != 1 || all[0].Snapshot != testKey("z") {
			t.Errorf("%+v", all)
		}
		if err := h.c.DeleteSnapshot(t.Context(), testKey("s"), true); !errors.Is(err, ErrNotFound) {
			t.Errorf("delete what is gone: %v", err)
		}
		h.end()
		h.live()
		h.up()
		cuts := func() (n int) {
			for _, call := range b.calls() {
				if strings.HasPrefix(call, "CreateSnapshot") {
					n++
				}
			}
			return n
		}
		asked := cuts()
		waits := func(when string) {
			t.Helper()
			h.snap(testSnapshot("s", volume))
			settleFor(time.Hour)
			s := h.snapshot("s")
			if s.Phase != Pending || !strings.Contains(s.Reason, "since snapshot default/z names it") || cuts() != asked {
				t.Errorf("%s: %+v, and %d calls", when, s, cuts()-asked)
			}
		}
		waits("z stays")
		h.c.RemoveSnapshot(testKey("s"))
		h.snap(namedTwin("s", handle))
		if s := h.snapshot("s"); s.Phase != Ready || s.Handle != handle {
			t.Errorf("by its handle: %+v", s)
		}
		h.deleteSnap("s")
		hold := make(chan struct{})
		b.set(func() {
			b.fault = onCall("DeleteSnapshot", func(string, proto.Message) fault { return fault{wait: hold} })
		})
		h.deleteSnap("z")
		waits("z is being deleted")
		close(hold)
		synctest.Wait()
		if s := h.snapshot("s"); s.Phase != Ready || b.made() != 1 || h.disk.count(SnapshotBucket) != 1 {
			t.Errorf("z is gone: %+v, %d at the driver", s, b.made())
		}
		h.deleteSnap("s")
		if b.made() != 0 || h.disk.count(SnapshotBucket) != 0 {
			t.Errorf("%d at the driver, %d records", b.made(), h.disk.count(SnapshotBucket))
		}
	})
}

// A person names a snapshot while the call that deletes it is in flight, and the driver has no list by which it could say that
// it is gone. It may give the handle to the next one of that name, which the deletion of the person's would take away: none is
// made under the name before.
func TestANameWaitsForWhatWasNamedWhileItWasBeingDeleted(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		h.set(testClaim("a", mib))
		volume := h.bound(testKey("a")).Handle
		h.snap(testSnapshot("s", volume))
		handle := h.snapshot("s").Handle
		hold := make(chan struct{})
		b.set(func() {
			b.fault = onCall("DeleteSnapshot", func(string, proto.Message) fault { return fault{wait: hold} })
		})
		h.deleteSnap("s")
		h.snap(namedTwin("z", handle))
		h.snap(testSnapshot("s", volume))
		close(hold)
		settleFor(time.Hour)
		if s := h.snapshot("s"); s.Phase != Pending || !strings.Contains(s.Reason, "since snapshot default/z names it") {
			t.Errorf("while z names it: %+v", s)
		}
		if z := h.snapshot("z"); z.Phase != Ready {
			t.Errorf("z: %+v", z)
		}
		h.deleteSnap("z")
		synctest.Wait()
		if s := h.snapshot("s"); !s.Ready || b.made() != 1 {
			t.Errorf("once z is gone: %+v, %d at the driver", s, b.made())
		}
	})
}

// A snapshot that a person named and that is not looked up yet keeps the driver's snapshot from being deleted; one that
// is named while the deletion runs is not begun. Both say so.
func TestADeletionAndAPersonWhoNamesTheSnapshot(t *testing.T) {
	b := newBackend()
	b.rpcs = append(b.rpcs, csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS)
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		h.set(testClaim("a", mib))
		h.snap(testSnapshot("s", h.bound(testKey("a")).Handle))
		handle := h.snapshot("s").Handle
		b.set(func() {
			b.fault = onCall("ListSnapshots", func(string, proto.Message) fault { return fault{before: status.Error(codes.Unavailable, "away")} })
		})
		h.snap(namedTwin("z", handle))
		h.deleteSnap("s")
		if s := h.snapshot("s"); b.made() != 1 || !strings.Contains(s.Reason, "snapshot default/z names it by its handle") {
			t.Errorf("%d at the driver, %+v", b.made(), s)
		}
		b.set(func() { b.fault = nil })
		settleFor(time.Hour)
		if s := h.snapshot("z"); !s.Ready || b.made() != 1 || len(h.c.Snapshots()) != 1 {
			t.Errorf("%d at the driver, %+v", b.made(), h.c.Snapshots())
		}
		hold := make(chan struct{})
		b.set(func() {
			b.fault = onCall("DeleteSnapshot", func(string, proto.Message) fault { return fault{wait: hold} })
		})
		h.deleteSnap("z")
		h.snap(namedTwin("y", handle))
		if s := h.snapshot("y"); s.Ready || !strings.Contains(s.Reason, "is being deleted, with snapshot default/z") {
			t.Errorf("%+v", s)
		}
		h.c.RemoveSnapshot(testKey("y"))
		close(hold)
		synctest.Wait()
		if b.made() != 0 || len(h.c.Snapshots()) != 0 {
			t.Errorf("%d at the driver, %+v", b.made(), h.c.Snapshots())
		}
	})
}

// A person named one snapshot of a group: the group's deletion waits for that record and says how to delete it, which
// leaves the driver's snapshot to the group.
func TestAGroupWaitsForARecordOfOneOfItsSnapshots(t *testing.T) {
	for what, newBackend := range bothDrivers {
		for _, name := range []string{"aa", "z"} { // before and after the group
			b := newBackend()
			bubble(t, b, func(t *testing.T, h *fakeNode) {
				h.c.cfg.Freezer = &stills{}
				h.up()
				h.setGroup(h.pair())
				h.snap(namedTwin(name, h.snapshot("g-a").Handle))
				h.c.RemoveGroup(testKey("g"))
				if err := h.c.DeleteGroup(t.Context(), testKey("g"), true); err != nil {
					t.Fatal(err)
				}
				settleFor(time.Minute)
				g := h.group("g")
				if b.made() != 2 || !strings.Contains(g.Reason, "csi-volmgr delete snapshot "+name+" -n default") {
					t.Errorf("%s: %d at the driver, %+v", what, b.made(), g)
				}
				h.deleteSnap(name)
				if b.made() != 0 || len(h.c.Groups())+len(h.c.Snapshots()) != 0 {
					t.Errorf("%s: %d at the driver, %+v, %+v", what, b.made(), h.c.Groups(), h.c.Snapshots())
				}
				for _, call := range b.calls() {
					if what == "of a driver that makes groups" && strings.HasPrefix(call, "DeleteSnapshot ") {
						t.Errorf("%s: %s", what, call)
					}
				}
			})
		}
	}
}
