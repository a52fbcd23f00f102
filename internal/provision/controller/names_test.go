package controller

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// A name follows from the storage id and the UID, and is as long for every UID. Without a storage id it has the UID.
//
// Sidecars: SP-17, SP-18.
func TestTheNameOfAVolumeHasTheStorageID(t *testing.T) {
	uuid := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]string{}
	for _, storage := range []string{"", "one", "two", strings.Repeat("x", 64)} {
		for _, uid := range []string{"u", "v", strings.Repeat("u", 200)} {
			id := naming{storage: storage}.id(uid)
			if by, twice := seen[id]; twice {
				t.Errorf("%s/%s has the id %s of %s", storage, uid, id, by)
			}
			seen[id] = storage + "/" + uid
			if (storage == "") != (id == uid) || storage != "" && !uuid.MatchString(id) {
				t.Errorf("%s/%s: %s", storage, uid, id)
			}
		}
	}
	// For ever: volumes are found by it.
	if id := (naming{storage: "one"}).id("u"); id != "0b38c548-3dde-8084-a967-a5f7348e89ef" {
		t.Errorf("the id of u at one became %s", id)
	}
}

// atStorage begins a life of another node with the same backend.
func (h *fakeNode) atStorage(id string) *fakeNode {
	h.t.Helper()
	n := &fakeNode{t: h.t, disk: newDisk(), backend: h.backend, usage: &usage{}, secrets: safe{}, logs: h.logs, naming: naming{storage: id}}
	n.live()
	h.t.Cleanup(n.end)
	n.c.cfg.Freezer = &stills{}
	n.up()
	return n
}

// Two nodes with one storage have volumes, snapshots and group snapshots of their own for objects of the same names. A
// node that has lost its journal finds its own.
func TestNodesWithOneStorageHaveVolumesOfTheirOwn(t *testing.T) {
	for what, newBackend := range bothDrivers {
		t.Run(what, func(t *testing.T) {
			b := newBackend()
			bubble(t, b, func(t *testing.T, h *fakeNode) {
				type all struct {
					volume   Volume
					snapshot SnapshotStatus
					group    GroupStatus
					names    []string
				}
				named := func() (names []string) {
					b.set(func() {
						names = slices.Concat(slices.Collect(maps.Keys(b.volumes)), slices.Collect(maps.Keys(b.cuts)), slices.Collect(maps.Keys(b.grouped)))
					})
					// A driver with groups names their snapshots itself.
					return slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, "cut-") })
				}
				make := func(n *fakeNode) (a all) {
					before := named()
					g := n.pair()
					a.volume = n.bound(testKey("a"))
					n.snap(testSnapshot("s", a.volume.Handle))
					n.setGroup(g)
					settleFor(time.Minute)
					a.snapshot, a.group = n.snapshot("s"), n.group("g")
					if !a.snapshot.Ready || !a.group.Ready {
						t.Fatalf("%+v, %+v", a.snapshot, a.group)
					}
					a.names = slices.DeleteFunc(named(), func(name string) bool { return slices.Contains(before, name) })
					return a
				}
				one, two, old := h.atStorage("one"), h.atStorage("two"), h.atStorage("")
				first, second, third := make(one), make(two), make(old)
				for _, pair := range [][2]all{{first, second}, {first, third}, {second, third}} {
					x, y := pair[0], pair[1]
					if x.volume.Name == y.volume.Name || x.volume.Handle == y.volume.Handle || x.snapshot.Content == y.snapshot.Content ||
						x.snapshot.Handle == y.snapshot.Handle || x.group.Content == y.group.Content || len(x.names) != len(y.names) {
						t.Errorf("%+v\n%+v", x, y)
					}
				}
				for _, name := range first.names {
					if strings.Contains(name, "uid-") {
						t.Errorf("%s has no storage id", name)
					}
				}
				if third.volume.Name != "pvc-uid-a" || third.snapshot.Content != "snapcontent-uid-s" || third.group.Content != "groupsnapcontent-uid-g" ||
					slices.ContainsFunc(third.names, func(name string) bool { return !strings.Contains(name, "uid-") }) {
					t.Errorf("without a storage id: %+v", third)
				}

				two.c.RemoveGroup(testKey("g"))
				two.c.RemoveSnapshot(testKey("s"))
				two.c.RemoveClaim(testKey("a"))
				for _, err := range []error{
					two.c.DeleteGroup(t.Context(), testKey("g"), false), two.c.DeleteSnapshot(t.Context(), testKey("s"), false),
					two.c.Delete(t.Context(), testKey("a"), false),
				} {
					if err != nil {
						t.Error(err)
					}
				}
				settleFor(time.Minute)
				left := named()
				for _, name := range slices.Concat(first.names, third.names) {
					if !slices.Contains(left, name) {
						t.Errorf("%s went with node two's", name)
					}
				}
				again := make(one.atStorage("one"))
				if again.volume.Handle != first.volume.Handle || again.snapshot.Handle != first.snapshot.Handle || again.group.Handle != first.group.Handle ||
					len(again.names) != 0 {
					t.Errorf("after a lost journal: %+v\nbefore: %+v", again, first)
				}
			})
		})
	}
}

// While the storage id is missing nothing is made. What exists goes on, also a snapshot that is named by its handle.
func TestNothingIsMadeWithoutAStorageID(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.c.cfg.Freezer = &stills{}
		h.up()
		there := h.pair()
		h.snap(testSnapshot("s", there.Members[0].Volume))
		handle := h.snapshot("s").Handle
		h.end()
		h.naming = naming{missing: "this node has no storage id"}
		h.live()
		h.up()
		h.set(testClaim("a", 2*mib))
		if v := h.bound(testKey("a")); v.CapacityBytes != 2*mib {
			t.Errorf("what exists does not go on: %+v", v)
		}
		h.set(testClaim("new", mib))
		h.snap(testSnapshot("new", there.Members[0].Volume))
		h.setGroup(there)
		named := testSnapshot("named", "")
		named.Claim, named.Handle = Key{}, handle
		h.snap(named)
		settleFor(time.Hour)
		if s := h.status(testKey("new")); s.Reason != h.naming.missing || s.Cause.Code != state.NoStorageID || !s.Stalled {
			t.Errorf("claim: %+v", s)
		}
		if s, g := h.snapshot("new"), h.group("g"); s.Reason != h.naming.missing || g.Reason != h.naming.missing {
			t.Errorf("snapshot: %q, group: %q", s.Reason, g.Reason)
		}
		if s := h.snapshot("named"); !s.Ready {
			t.Errorf("a snapshot by its handle: %+v", s)
		}
		if got := b.names(); len(got) != 2 || b.made() != 1 || b.groups() != 0 {
			t.Errorf("made: %v, %d snapshots", got, b.made())
		}
		h.end()
		h.naming = naming{storage: "one"}
		h.live()
		h.c.cfg.Freezer = &stills{}
		h.up()
		for _, name := range []string{"a", "b", "new"} {
			h.set(testClaim(name, mib))
		}
		h.snap(testSnapshot("new", there.Members[0].Volume))
		h.setGroup(there)
		synctest.Wait()
		settleFor(time.Minute)
		if v := h.bound(testKey("new")); v.Name != "pvc-"+h.naming.id("uid-new") || h.bound(testKey("a")).Name != "pvc-uid-a" {
			t.Errorf("once it is there: %+v", v)
		}
		if s, g := h.snapshot("new"), h.group("g"); !s.Ready || !g.Ready || h.snapshot("s").Content != "snapcontent-uid-s" {
			t.Errorf("%+v, %+v", s, g)
		}
	})
}

// A name is formed anew while nothing has it: a snapshot that was named by its handle may have got one before the
// storage id was known.
func TestANameIsFormedWhenItIsGiven(t *testing.T) {
	s, g := testSnapshot("s", "vol"), testGroup("g", "vol")
	s.naming, g.naming = naming{storage: "one"}, naming{storage: "one"}
	for phase, anew := range map[state.Phase]bool{state.Absent: true, state.Entering: false} {
		cut := beginSnapshot(snapshotRecord{Snapshot: s.Key, UID: s.UID, Name: "snapshot-uid-s", Content: state.Fact{Phase: phase}}, &s, snapshotOp{verb: createSnapshot, from: phase})
		all := beginGroup(groupRecord{Group: g.Key, UID: g.UID, Name: "groupsnapshot-uid-g", Content: state.Fact{Phase: phase}}, &g, groupOp{verb: createGroup, from: phase})
		if (cut.Name == s.snapshotName()) != anew || (all.Name == g.groupName()) != anew {
			t.Errorf("%s: %s, %s", phase, cut.Name, all.Name)
		}
	}
}
