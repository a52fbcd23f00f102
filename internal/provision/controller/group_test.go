package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

func groupCapabilities() *csi.GroupControllerGetCapabilitiesResponse {
	return &csi.GroupControllerGetCapabilitiesResponse{Capabilities: []*csi.GroupControllerServiceCapability{{
		Type: &csi.GroupControllerServiceCapability_Rpc{Rpc: &csi.GroupControllerServiceCapability_RPC{
			Type: csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT,
		}},
	}}}
}

func (b *backend) cutGroup(req *csi.CreateVolumeGroupSnapshotRequest) (proto.Message, error) {
	g := b.grouped[req.GetName()]
	if g == nil {
		b.next++
		g = &csi.VolumeGroupSnapshot{GroupSnapshotId: fmt.Sprintf("group-%d", b.next), CreationTime: timestamppb.New(time.Unix(1e9, 0))}
		for _, v := range req.GetSourceVolumeIds() {
			b.next++
			g.Snapshots = append(g.Snapshots, &csi.Snapshot{
				SnapshotId: fmt.Sprintf("cut-%d", b.next), SourceVolumeId: v, SizeBytes: mib, GroupSnapshotId: g.GetGroupSnapshotId(),
			})
		}
		b.grouped[req.GetName()] = g
	}
	if of := sources(g); !slices.Equal(of, req.GetSourceVolumeIds()) {
		b.breach("CreateVolumeGroupSnapshot %s of %v, and before of %v", req.GetName(), req.GetSourceVolumeIds(), of)
	}
	b.lookAt(g)
	return &csi.CreateVolumeGroupSnapshotResponse{GroupSnapshot: proto.Clone(g).(*csi.VolumeGroupSnapshot)}, nil
}

func (b *backend) lookAt(g *csi.VolumeGroupSnapshot) {
	for _, s := range g.GetSnapshots() {
		b.look(s)
		g.ReadyToUse = s.GetReadyToUse()
		b.cuts[s.GetSnapshotId()] = s
	}
}

func sources(g *csi.VolumeGroupSnapshot) (ids []string) {
	for _, s := range g.GetSnapshots() {
		ids = append(ids, s.GetSourceVolumeId())
	}
	return ids
}

func (b *backend) groupOf(call, id string, snapshots []string) *csi.VolumeGroupSnapshot {
	for _, g := range b.grouped {
		var own []string
		for _, s := range g.GetSnapshots() {
			own = append(own, s.GetSnapshotId())
		}
		if g.GetGroupSnapshotId() == id {
			if !slices.Equal(own, snapshots) {
				b.breach("%s %s with snapshots %v, which has %v", call, id, snapshots, own)
			}
			return g
		}
	}
	return nil
}

func (b *backend) lookGroup(req *csi.GetVolumeGroupSnapshotRequest) (proto.Message, error) {
	g := b.groupOf("GetVolumeGroupSnapshot", req.GetGroupSnapshotId(), req.GetSnapshotIds())
	if g == nil {
		return nil, status.Error(codes.NotFound, "group")
	}
	b.lookAt(g)
	return &csi.GetVolumeGroupSnapshotResponse{GroupSnapshot: proto.Clone(g).(*csi.VolumeGroupSnapshot)}, nil
}

func (b *backend) discardGroup(req *csi.DeleteVolumeGroupSnapshotRequest) (proto.Message, error) {
	g := b.groupOf("DeleteVolumeGroupSnapshot", req.GetGroupSnapshotId(), req.GetSnapshotIds())
	if g == nil {
		return nil, status.Error(codes.NotFound, "group")
	}
	for _, s := range g.GetSnapshots() {
		delete(b.cuts, s.GetSnapshotId())
	}
	maps.DeleteFunc(b.grouped, func(_ string, other *csi.VolumeGroupSnapshot) bool { return other == g })
	return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
}

// made counts the snapshots.
func (b *backend) made() (n int) {
	b.set(func() { n = len(b.cuts) })
	return n
}

// groups counts the group snapshots.
func (b *backend) groups() (n int) {
	b.set(func() { n = len(b.grouped) })
	return n
}

// still returns how many file systems are frozen, and how often one was frozen or thawed.
func (s *stills) still() (frozen, changes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.frozen, len(s.log)
}

// bothDrivers are a driver that makes groups, and one that makes single snapshots only.
var bothDrivers = map[string]func() *backend{
	"of a driver that makes groups": func() *backend {
		b := newBackend()
		b.services = append(b.services, csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE)
		return b
	},
	"of a driver that makes a snapshot of each volume": newBackend,
}

// pair makes two claims and returns a group of their volumes.
func (h *fakeNode) pair() Group {
	h.t.Helper()
	h.set(testClaim("a", mib))
	h.set(testClaim("b", mib))
	return testGroup("g", h.bound(testKey("a")).Handle, h.bound(testKey("b")).Handle)
}

func (h *fakeNode) setGroup(g Group) {
	h.c.SetGroup(g)
	synctest.Wait()
}

func (h *fakeNode) group(name string) GroupStatus {
	h.t.Helper()
	s, ok := h.c.Group(testKey(name))
	if !ok {
		h.t.Fatalf("group %s: not listed; have %+v", name, h.c.Groups())
	}
	return s
}

// A group snapshot is made, and claims are made of its snapshots. It is deleted as a whole, on request and when no
// claim waits for it; not because no source lists it, and none of its snapshots alone.
//
// Sidecars: SS-17, SS-21, SS-22.
func TestAGroupComesIsRestoredAndGoes(t *testing.T) {
	for what, newBackend := range bothDrivers {
		t.Run(what, func(t *testing.T) {
			b := newBackend()
			b.looks = 1
			bubble(t, b, func(t *testing.T, h *fakeNode) {
				h.c.cfg.Freezer = &stills{}
				h.up()
				restored := testClaim("c", mib)
				restored.Source = &DataSource{Snapshot: testKey("g-b")}
				h.set(restored)
				want := h.pair()
				h.setGroup(want)
				settleFor(time.Minute)
				g, s := h.group("g"), h.snapshot("g-b")
				if g.Phase != Ready || !g.Ready || g.Content != "groupsnapcontent-uid-g" || !g.Created.Equal(time.Unix(1e9, 0)) ||
					!slices.Equal(g.Claims, []string{"a", "b"}) || !slices.Equal(g.Snapshots, []string{"g-a", "g-b"}) ||
					g.Consistency != Frozen || g.Reason != "" {
					t.Errorf("%+v", g)
				}
				if s.Phase != Ready || s.Group != testKey("g") || s.Claim != testKey("b") || s.Handle == "" || s.SizeBytes != mib ||
					s.Consistency != Frozen {
					t.Errorf("%+v", s)
				}
				h.bound(testKey("c"))
				calls := len(b.calls())
				h.end()
				h.live()
				h.c.cfg.Freezer = &stills{}
				h.up()
				h.setGroup(want)
				for _, name := range []string{"a", "b"} {
					h.set(testClaim(name, mib))
				}
				h.set(restored)
				if after := h.group("g"); fmt.Sprint(after.Snapshots, after.Handle, after.Ready) != fmt.Sprint(g.Snapshots, g.Handle, true) || len(b.calls()) != calls {
					t.Errorf("after a restart: %+v, calls %q", after, b.calls()[calls:])
				}
				if err := h.c.DeleteSnapshot(t.Context(), testKey("g-b"), true); !errors.Is(err, ErrGrouped) {
					t.Errorf("delete of one snapshot: %v", err)
				}
				if err := h.c.DeleteGroup(t.Context(), testKey("g"), false); !errors.Is(err, ErrListed) {
					t.Errorf("delete of one that is listed: %v", err)
				}
				h.c.RemoveGroup(testKey("g"))
				settleFor(time.Hour)
				if g, s := h.group("g"), h.snapshot("g-a"); g.Phase != Released || s.Phase != Released || b.made() != 2 {
					t.Errorf("%+v, %+v, and %d at the backend", g, s, b.made())
				}
				again := testClaim("d", mib)
				again.Source = &DataSource{Snapshot: testKey("g-a")}
				b.set(func() {
					b.fault = onCall("CreateVolume", func(string, proto.Message) fault { return fault{before: status.Error(codes.Unavailable, "away")} })
				})
				h.set(again)
				if err := h.c.DeleteGroup(t.Context(), testKey("g"), false); !errors.Is(err, ErrInUse) {
					t.Errorf("delete while a claim is to be made of it: %v", err)
				}
				b.set(func() { b.fault = nil })
				settleFor(time.Hour)
				h.bound(testKey("d"))
				if err := h.c.DeleteGroup(t.Context(), testKey("g"), false); err != nil {
					t.Error(err)
				}
				settleFor(time.Hour)
				if len(h.c.Groups())+len(h.c.Snapshots())+b.made()+h.disk.count(GroupBucket)+h.disk.count(SnapshotBucket) != 0 {
					t.Errorf("left: %+v, %+v, %v, records %q", h.c.Groups(), h.c.Snapshots(), b.cuts, h.disk.groups)
				}
				if err := h.c.DeleteGroup(t.Context(), testKey("g"), false); !errors.Is(err, ErrNotFound) {
					t.Errorf("again: %v", err)
				}
			})
		})
	}
}

// The controller freezes all file systems before the first call and thaws them after the last. If one cannot be
// frozen, it thaws the others and makes no call.
func TestAGroupIsMadeWhileAllItsVolumesAreStill(t *testing.T) {
	for what, newBackend := range bothDrivers {
		for name, c := range map[string]struct {
			expired bool
			refuses bool
			answer  fault // to the first call
			want    Consistency
			each    Consistency // with a driver that makes single snapshots; "" for the same
		}{
			"frozen":              {want: Frozen},
			"the limit ended it":  {expired: true, want: Crash, each: Apart},
			"an answer was lost":  {answer: fault{after: status.Error(codes.DeadlineExceeded, "slow")}, want: Crash, each: Apart},
			"it was turned down":  {answer: fault{before: status.Error(codes.ResourceExhausted, "full")}, want: Frozen},
			"one cannot be still": {refuses: true},
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				b := newBackend()
				f := &stills{expired: c.expired}
				first, thawed := true, 0
				b.fault = func(call string, _ proto.Message) fault {
					if call != "CreateSnapshot" && call != "CreateVolumeGroupSnapshot" {
						return fault{}
					}
					f.mu.Lock()
					if f.frozen != 2 {
						thawed++
					}
					f.mu.Unlock()
					if !first {
						return fault{}
					}
					first = false
					return c.answer
				}
				bubble(t, b, func(t *testing.T, h *fakeNode) {
					h.c.cfg.Freezer = f
					h.up()
					g := h.pair()
					if c.refuses {
						f.err, f.refuses = errors.New("nfs cannot be frozen"), state.SharedID(g.Class.Driver, g.Members[1].Volume)
					}
					g.Freeze = 10 * time.Second
					h.setGroup(g)
					settleFor(time.Minute)
					got := h.group("g")
					frozen, _ := f.still()
					want := c.want
					if c.each != "" && len(b.services) == 2 {
						want = c.each
					}
					switch {
					case frozen != 0 || thawed != 0:
						t.Errorf("%d are frozen in the end, %d calls were made while one was not", frozen, thawed)
					case c.refuses && (got.Phase != Pending || !strings.Contains(got.Reason, "nfs cannot be frozen") || b.made() != 0):
						t.Errorf("%+v, %v", got, b.cuts)
					case !c.refuses && (got.Phase != Ready || got.Consistency != want || h.snapshot("g-a").Consistency != want || b.made() != 2):
						t.Errorf("%+v, want %s", got, want)
					}
				})
			})
		}
	}
}

// All or none: if the driver refuses one volume, the controller deletes the snapshot of the other and makes all of
// them again.
//
// Sidecars: SS-17.
func TestAGroupIsAllOrNone(t *testing.T) {
	b := newBackend()
	refusals := 2
	b.fault = onCall("CreateSnapshot", func(_ string, req proto.Message) fault {
		if req.(*csi.CreateSnapshotRequest).GetSourceVolumeId() == "vol-2" && refusals > 0 {
			refusals--
			return fault{before: status.Error(codes.ResourceExhausted, "full")}
		}
		return fault{}
	})
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		f := &stills{}
		h.c.cfg.Freezer = f
		h.up()
		h.setGroup(h.pair())
		if g := h.group("g"); g.Phase != Pending || !strings.Contains(g.Reason, "claim default/b: full") || b.made() != 0 {
			t.Errorf("%+v, at the backend %v", g, b.cuts)
		}
		settleFor(time.Minute)
		frozen, changes := f.still()
		if g := h.group("g"); g.Phase != Ready || g.Consistency != Frozen || b.made() != 2 || frozen != 0 || changes != 12 {
			t.Errorf("%+v, %d at the backend, %d frozen, %d changes", g, b.made(), frozen, changes)
		}
	})
}

// A group that cannot be made says why, and what would be right.
//
// Sidecars: SS-18.
func TestAGroupThatIsNotMade(t *testing.T) {
	for _, c := range []struct {
		change func(h *fakeNode, g *Group)
		words  string
	}{
		{func(_ *fakeNode, g *Group) { g.Freeze = 0 }, "csi-volmgr.dev/freeze"},
		{func(_ *fakeNode, g *Group) { g.Refused = "it chooses no claim" }, "it chooses no claim"},
		{func(_ *fakeNode, g *Group) { g.Waits = "claim default/a has no volume yet" }, "no volume yet"},
		{func(_ *fakeNode, g *Group) { g.Members = make([]Member, MaxMembers+1) }, "at most 64"},
		{func(_ *fakeNode, g *Group) { g.Members = nil }, "it has no volumes"},
		{func(_ *fakeNode, g *Group) { g.Class.Driver = "other.example.com" }, "driver other.example.com is not registered"},
		{func(_ *fakeNode, g *Group) { g.UID = strings.Repeat("u", 120) }, "120 bytes"},
		{func(_ *fakeNode, g *Group) { g.Class.Parameters["csi.storage.k8s.io/x"] = "y" }, "csi.storage.k8s.io/x"},
		{func(_ *fakeNode, g *Group) {
			g.Class.Parameters["csi.storage.k8s.io/group-snapshotter-secret-name"] = "${pvc.name}"
		}, "${volumegroupsnapshotcontent.name}"},
		{func(h *fakeNode, g *Group) {
			h.snap(testSnapshot("g-b", g.Members[0].Volume))
		}, "snapshot default/g-b exists already"},
		{func(h *fakeNode, g *Group) {
			other := *g
			other.Key = testKey("other")
			h.setGroup(other)
		}, "two cannot have the same UID"},
	} {
		bubble(t, newBackend(), func(t *testing.T, h *fakeNode) {
			h.c.cfg.Freezer = &stills{}
			h.up()
			g := h.pair()
			c.change(h, &g)
			before := len(h.backend.calls())
			h.setGroup(g)
			settleFor(time.Hour)
			if got := h.group("g"); got.Phase != Pending || !strings.Contains(got.Reason, c.words) {
				t.Errorf("%q: %+v", c.words, got)
			}
			if got := h.backend.calls()[before:]; len(got) > 0 {
				t.Errorf("%q: calls %q", c.words, got)
			}
			h.c.RemoveGroup(testKey("g"))
			synctest.Wait()
			if _, ok := h.c.Group(testKey("g")); ok {
				t.Errorf("%q: it is kept", c.words)
			}
		})
	}
}

// The controller takes over an existing group snapshot by its handles: claims are made of its snapshots, a restart
// finds it, its policy follows its content, and it is deleted as a whole. One that the driver lacks, or has with
// other snapshots, waits and says so.
//
// Sidecars: SS-19, SS-21.
func TestAGroupThatAPersonNamed(t *testing.T) {
	b := bothDrivers["of a driver that makes groups"]()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		of := h.pair()
		b.set(func() {
			_, err := b.cutGroup(&csi.CreateVolumeGroupSnapshotRequest{Name: "by another", SourceVolumeIds: []string{of.Members[0].Volume, of.Members[1].Volume}})
			if err != nil {
				t.Error(err)
			}
		})
		named := Group{Key: testKey("g"), UID: "uid-g", Handle: "group-3", Handles: []string{"cut-4"}, Class: of.Class}
		named.Class.Retain = true
		wrong := named
		wrong.Handle = "nowhere"
		h.setGroup(wrong)
		if g := h.group("g"); g.Phase != Pending || !strings.Contains(g.Reason, "GetVolumeGroupSnapshot: NotFound") {
			t.Errorf("%+v", g)
		}
		h.setGroup(named)
		if g := h.group("g"); g.Phase != Pending || !strings.Contains(g.Reason, `snapshot "cut-5" of volume "vol-2", which is none of the group's`) {
			t.Errorf("%+v", g)
		}
		b.set(func() { b.breaches = nil }) // the person named too few snapshots, so the call had too few
		named.Handles = []string{"cut-4", "cut-5"}
		h.setGroup(named)
		if g := h.group("g"); g.Phase != Ready || g.Handle != "group-3" || !slices.Equal(g.Snapshots, []string{"g-1", "g-2"}) || len(g.Claims) != 0 || !g.Created.Equal(time.Unix(1e9, 0)) {
			t.Errorf("%+v", g)
		}
		restored := testClaim("c", mib)
		restored.Source = &DataSource{Snapshot: testKey("g-2")}
		h.set(restored)
		h.bound(testKey("c"))
		h.end()
		h.live()
		h.up()
		if s := h.snapshot("g-2"); s.Handle != "cut-5" || s.ReclaimPolicy != Retain || s.Phase != Released {
			t.Errorf("after a restart: %+v", s)
		}
		other := named
		other.Handle = "group-9"
		h.setGroup(other)
		if g := h.group("g"); !g.Refused || !strings.Contains(g.Reason, "it names the driver's group snapshot group-9, but group-3 exists") {
			t.Errorf("%+v", g)
		}
		h.c.RemoveGroup(testKey("g"))
		if err := h.c.DeleteGroup(t.Context(), testKey("g"), false); !errors.Is(err, ErrRetained) {
			t.Errorf("DeleteGroup: %v", err)
		}
		named.Class.Retain = false
		h.setGroup(named)
		h.c.RemoveGroup(testKey("g"))
		if err := h.c.DeleteGroup(t.Context(), testKey("g"), false); err != nil {
			t.Errorf("DeleteGroup once its content says Delete: %v", err)
		}
		settleFor(time.Minute)
		if len(h.c.Groups())+b.groups()+h.disk.count(GroupBucket) != 0 {
			t.Errorf("left: %+v, %v, %q", h.c.Groups(), b.grouped, h.disk.groups)
		}
		absent := Group{Key: testKey("g"), UID: "uid-h", Handle: "nowhere", Handles: []string{"cut-9"}, Class: of.Class}
		h.setGroup(absent)
		if g := h.group("g"); g.Phase != Pending || !strings.Contains(g.Reason, "GetVolumeGroupSnapshot: NotFound") {
			t.Errorf("%+v", g)
		}
		h.c.RemoveGroup(testKey("g"))
		synctest.Wait()
		if len(h.c.Groups())+len(h.c.Snapshots())+h.disk.count(GroupBucket) != 0 {
			t.Errorf("left: %+v, %+v, %q", h.c.Groups(), h.c.Snapshots(), h.disk.groups)
		}
	})
}

// A group waits until the snapshot that has one of its names is deleted.
func TestAGroupWaitsForAName(t *testing.T) {
	bubble(t, newBackend(), func(t *testing.T, h *fakeNode) {
		h.c.cfg.Freezer = &stills{}
		h.up()
		g := h.pair()
		h.snap(testSnapshot("g-b", g.Members[0].Volume))
		h.setGroup(g)
		h.c.RemoveSnapshot(testKey("g-b"))
		if err := h.c.DeleteSnapshot(t.Context(), testKey("g-b"), false); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := h.group("g"); got.Phase != Ready {
			t.Errorf("%+v", got)
		}
	})
}

// If two groups would give snapshots one name, or have one UID, one of them waits, even if both are planned in one
// step.
func TestTwoGroupsDoNotShareNames(t *testing.T) {
	for what, change := range map[string]func(g, o *Group){
		"names": func(g, o *Group) {
			g.Key, g.Members[0].Claim, g.Members = testKey("a-b"), testKey("c"), g.Members[:1]
			o.Key, o.UID, o.Members[1].Claim, o.Members = testKey("a"), "uid-o", testKey("b-c"), o.Members[1:]
		},
		"UIDs": func(g, o *Group) { g.Members, o.Key, o.Members = g.Members[:1], testKey("o"), o.Members[1:] },
	} {
		bubble(t, newBackend(), func(t *testing.T, h *fakeNode) {
			h.c.cfg.Freezer = &stills{}
			h.up()
			g := h.pair()
			o := g
			o.Members = slices.Clone(g.Members)
			change(&g, &o)
			h.c.DriverDown("strict.example.com")
			h.c.SetGroup(g)
			h.c.SetGroup(o)
			h.up()
			settleFor(time.Hour)
			ready := 0
			for _, s := range h.c.Groups() {
				if s.Phase == Ready {
					ready++
				}
			}
			if ready != 1 || h.backend.made() != 1 {
				t.Errorf("%s: %+v, at the backend %v", what, h.c.Groups(), h.backend.cuts)
			}
		})
	}
}

// A group that the driver refused does not exist: unlisted, it is forgotten, and its volumes can be deleted.
//
// Sidecars: SS-18.
func TestVolumesThatCannotBeSnapshottedTogether(t *testing.T) {
	b := bothDrivers["of a driver that makes groups"]()
	b.fault = onCall("CreateVolumeGroupSnapshot", func(string, proto.Message) fault {
		return fault{before: status.Error(codes.FailedPrecondition, "a directory is mounted")}
	})
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		g := h.pair()
		g.Freeze = 0
		h.setGroup(g)
		if got := h.group("g"); got.Phase != Pending || !strings.Contains(got.Reason, "a directory is mounted") {
			t.Errorf("%+v", got)
		}
		h.c.RemoveGroup(testKey("g"))
		for _, name := range []string{"a", "b"} {
			h.c.RemoveClaim(testKey(name))
			if err := h.c.Delete(t.Context(), testKey(name), false); err != nil {
				t.Error(err)
			}
		}
		settleFor(time.Hour)
		if len(h.c.Groups())+len(b.names())+h.disk.count(GroupBucket) != 0 {
			t.Errorf("left: %+v, volumes %v, %q", h.c.Groups(), b.names(), h.disk.groups)
		}
	})
}

// A refused group's volumes stay until the journal has the refusal: the next life would ask for it again.
func TestTheVolumesOfAGroupWaitForTheJournal(t *testing.T) {
	b := bothDrivers["of a driver that makes groups"]()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.c.cfg.Freezer = &stills{}
		h.up()
		g := h.pair()
		b.set(func() {
			b.fault = onCall("CreateVolumeGroupSnapshot", func(string, proto.Message) fault {
				h.disk.refuse(GroupBucket)
				return fault{before: status.Error(codes.ResourceExhausted, "full")}
			})
		})
		h.setGroup(g)
		h.c.RemoveGroup(testKey("g"))
		h.c.RemoveClaim(testKey("a"))
		if err := h.c.Delete(t.Context(), testKey("a"), false); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if len(b.names()) != 2 || !strings.Contains(h.status(testKey("a")).Reason, "group snapshot default/g") {
			t.Errorf("volumes %v, %+v", b.names(), h.status(testKey("a")))
		}
		h.disk.refuse("")
		settleFor(time.Minute)
		if len(b.names()) != 1 || h.disk.count(GroupBucket) != 0 {
			t.Errorf("volumes %v, records %q", b.names(), h.disk.groups)
		}
	})
}

// To delete a group that may exist, the controller repeats the call for its handles, without a freeze.
func TestAGroupThatGoesFreezesNothing(t *testing.T) {
	b := newBackend()
	b.fault = onCall("CreateSnapshot", func(string, proto.Message) fault {
		return fault{after: status.Error(codes.DeadlineExceeded, "lost")}
	})
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		f := &stills{}
		h.c.cfg.Freezer = f
		h.up()
		h.setGroup(h.pair())
		h.c.RemoveGroup(testKey("g"))
		b.set(func() { b.fault = nil })
		f.mu.Lock()
		f.err = errors.New("nfs cannot be frozen")
		f.mu.Unlock()
		if err := h.c.DeleteGroup(t.Context(), testKey("g"), false); err != nil {
			t.Fatal(err)
		}
		settleFor(time.Hour)
		if len(h.c.Groups())+b.made() != 0 {
			t.Errorf("left: %+v, %v", h.c.Groups(), b.cuts)
		}
	})
}

// If an answer names snapshots of others, or one twice, the group takes none of them.
//
// Sidecars: SS-22.
func TestAGroupTakesNoOthersSnapshots(t *testing.T) {
	for what, handles := range map[string][2]string{"others": {"cut-3", "cut-4"}, "one twice": {"x", "x"}} {
		bubble(t, newBackend(), func(t *testing.T, h *fakeNode) {
			h.c.cfg.Freezer = &stills{}
			h.up()
			g := h.pair()
			h.snap(testSnapshot("s", g.Members[0].Volume))
			h.snap(testSnapshot("t", g.Members[1].Volume))
			e := &groupEntry{row: newRow[groupRecord](testKey("g"))}
			k := groupCall{driver: h.backend.driver(), op: groupOp{verb: createGroup, spec: groupSpec{Each: true}}, rec: groupRecord{Members: make([]groupMember, 2)}}
			res := groupResult{members: make([]memberResult, 2)}
			for i, handle := range handles {
				res.members[i].made.handle = handle
			}
			done := make(chan struct{})
			h.c.post(func(context.Context) { h.c.checkOwners(e, k, &res); close(done) })
			<-done
			if res.err == nil || res.members[1].err == nil || what == "others" && res.members[0].err == nil {
				t.Errorf("%s: %+v", what, res)
			}
		})
	}
}

// A driver never gets more calls at a time than allowed, even if several groups are planned in one step.
func TestGroupsWaitForTheirTurn(t *testing.T) {
	b := bothDrivers["of a driver that makes groups"]()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		hold := make(chan struct{})
		b.fault = func(call string, _ proto.Message) fault {
			if call == "CreateVolumeGroupSnapshot" {
				return fault{wait: hold}
			}
			return fault{}
		}
		h.c.cfg.Freezer, h.c.cfg.MaxCalls = &stills{}, 1
		h.up()
		g := h.pair()
		o := g
		g.Members, o.Members, o.Key, o.UID = g.Members[:1], g.Members[1:], testKey("o"), "uid-o"
		h.c.DriverDown("strict.example.com")
		h.c.SetGroup(g)
		h.c.SetGroup(o)
		h.up()
		b.set(func() {
			if b.inFlight != 1 {
				t.Errorf("%d calls in flight", b.inFlight)
			}
		})
		close(hold)
		settleFor(time.Minute)
		if h.group("g").Phase != Ready || h.group("o").Phase != Ready {
			t.Errorf("%+v", h.c.Groups())
		}
	})
}

// If a driver's GroupController fails to answer, the driver still serves its volumes.
func TestABrokenGroupControllerLeavesTheDriver(t *testing.T) {
	b := bothDrivers["of a driver that makes groups"]()
	b.fault = func(call string, _ proto.Message) fault {
		if call == "GroupControllerGetCapabilities" {
			return fault{before: status.Error(codes.Unimplemented, "no such service")}
		}
		return fault{}
	}
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		h.set(testClaim("a", mib))
		h.bound(testKey("a"))
	})
}

// A VolumeSnapshot does not take over the name of a group's snapshot.
func TestTheNameOfAGroupsSnapshotIsTaken(t *testing.T) {
	bubble(t, newBackend(), func(t *testing.T, h *fakeNode) {
		h.c.cfg.Freezer = &stills{}
		h.up()
		g := h.pair()
		h.setGroup(g)
		before := h.snapshot("g-a")
		h.snap(testSnapshot("g-a", g.Members[1].Volume))
		s := h.snapshot("g-a")
		if s.Handle != before.Handle || !strings.Contains(s.Reason, "of group snapshot default/g; give it another name") || !s.Refused {
			t.Errorf("%+v", s)
		}
		h.c.RemoveSnapshot(testKey("g-a"))
		synctest.Wait()
		if s := h.snapshot("g-a"); s.Reason != "" || s.Phase != Ready {
			t.Errorf("%+v", s)
		}
	})
}

// While a group is being made, its volumes are not deleted and get no other call.
//
// Sidecars: SS-18.
func TestTheVolumesOfAGroupWait(t *testing.T) {
	for what, newBackend := range bothDrivers {
		t.Run(what, func(t *testing.T) {
			b := newBackend()
			bubble(t, b, func(t *testing.T, h *fakeNode) {
				hold := make(chan struct{})
				b.fault = func(call string, _ proto.Message) fault {
					if call == "CreateSnapshot" || call == "CreateVolumeGroupSnapshot" {
						return fault{wait: hold}
					}
					return fault{}
				}
				h.c.cfg.Freezer = &stills{}
				h.up()
				g := h.pair()
				h.setGroup(g)
				h.set(testClaim("a", 2*mib))
				if got := h.status(testKey("a")).Reason; !strings.Contains(got, "snapshot default/g-a is in flight") {
					t.Errorf("a claim that grows waits for %q", got)
				}
				h.c.RemoveClaim(testKey("b"))
				if err := h.c.Delete(t.Context(), testKey("b"), false); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				if len(b.names()) != 2 {
					t.Errorf("volumes: %v", b.names())
				}
				close(hold)
				settleFor(time.Minute)
				if len(b.names()) != 1 || h.bound(testKey("a")).CapacityBytes != 2*mib || h.group("g").Phase != Ready {
					t.Errorf("volumes %v, %+v", b.names(), h.group("g"))
				}
			})
		})
	}
}

// A person who repaired the storage ends the wait of a group, by its name or by that of one of its snapshots.
//
// Sidecars: SS-20.
func TestAGroupIsTriedAgain(t *testing.T) {
	for what, retry := range map[string]func(*Controller){
		"the group":       func(c *Controller) { c.RetryGroup(testKey("g")) },
		"one of its own":  func(c *Controller) { c.RetrySnapshot(testKey("g-b")) },
		"another's group": nil,
	} {
		b := newBackend()
		fails := true
		b.fault = onCall("CreateSnapshot", func(string, proto.Message) fault {
			if fails {
				return fault{before: status.Error(codes.Unavailable, "away")}
			}
			return fault{}
		})
		bubble(t, b, func(t *testing.T, h *fakeNode) {
			h.c.cfg.Freezer = &stills{}
			h.up()
			h.setGroup(h.pair())
			settleFor(time.Hour)
			b.set(func() { fails = false })
			if retry == nil {
				h.c.RetryGroup(testKey("h"))
			} else {
				retry(h.c)
			}
			synctest.Wait()
			if got := h.group("g"); (got.Phase == Ready) != (retry != nil) {
				t.Errorf("%s: %+v", what, got)
			}
		})
	}
}

// The controller does not use an answer that CSI forbids.
//
// Sidecars: SS-20.
func TestWrongAnswersOfAGroup(t *testing.T) {
	good := func() *csi.VolumeGroupSnapshot {
		return &csi.VolumeGroupSnapshot{GroupSnapshotId: "group", ReadyToUse: true, Snapshots: []*csi.Snapshot{
			{SnapshotId: "s1", SourceVolumeId: "v1", ReadyToUse: true}, {SnapshotId: "s2", SourceVolumeId: "v2", ReadyToUse: true},
		}}
	}
	rec := groupRecord{Group: testKey("g"), UID: "u", Name: "n", Members: []groupMember{{Volume: "v1"}, {Volume: "v2"}}}
	for _, c := range []struct {
		spoil func(*csi.VolumeGroupSnapshot)
		words string
	}{
		{func(*csi.VolumeGroupSnapshot) {}, ""},
		{func(g *csi.VolumeGroupSnapshot) { slices.Reverse(g.Snapshots) }, ""},
		{func(g *csi.VolumeGroupSnapshot) { g.GroupSnapshotId = "" }, "without a group_snapshot_id"},
		{func(g *csi.VolumeGroupSnapshot) { g.GroupSnapshotId = strings.Repeat("x", 4096) }, "4096 bytes"},
		{func(g *csi.VolumeGroupSnapshot) { g.Snapshots = g.Snapshots[:1] }, "with 1 snapshots where 2 were asked for"},
		{func(g *csi.VolumeGroupSnapshot) { g.Snapshots[1].SourceVolumeId = "v3" }, `"v3"`},
		{func(g *csi.VolumeGroupSnapshot) { g.Snapshots[1].SourceVolumeId = "v1" }, "two snapshots of volume v1"},
		{func(g *csi.VolumeGroupSnapshot) { g.Snapshots[1].SnapshotId = "s1" }, "snapshot s1 twice"},
		{func(g *csi.VolumeGroupSnapshot) { g.Snapshots[1].SnapshotId = "" }, "without a snapshot_id"},
	} {
		g := good()
		c.spoil(g)
		res := checkGroup(groupCall{rec: rec, op: groupOp{verb: createGroup}}, g)
		switch {
		case c.words == "" && (res.err != nil || res.members[0].made.handle != "s1" || res.members[1].made.handle != "s2" || !res.members[1].made.ready):
			t.Errorf("%+v: %+v", g, res)
		case c.words != "" && (res.err == nil || !strings.Contains(res.err.Error(), c.words) || res.members != nil || res.err.Call != "CreateVolumeGroupSnapshot"):
			t.Errorf("%q: %+v", c.words, res)
		}
	}
	if res := checkGroup(groupCall{rec: groupRecord{Handle: "other"}, op: groupOp{verb: getGroup}}, good()); res.err == nil {
		t.Error("another group's answer is taken")
	}
	notReady := good()
	notReady.ReadyToUse = false
	if res := checkGroup(groupCall{rec: rec, op: groupOp{verb: createGroup}}, notReady); res.members[0].made.ready {
		t.Error("a group that is not ready has a snapshot that is")
	}
}

// A record that cannot be read whole is refused, and the group stays untouched.
func TestRecordsOfGroups(t *testing.T) {
	whole := groupRecord{
		Group: testKey("g"), UID: "u", Name: "groupsnapshot-u", Handle: "group", Spec: groupSpec{Driver: "d"},
		Content: state.Fact{Phase: state.Present}, Members: []groupMember{{Volume: "v", Snapshot: "g-a", Handle: "s", Phase: state.Present}},
	}
	b, err := groupBucket().encode("default/g", whole)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := groupBucket().decode("default/g", b); err != nil || got.Members[0] != whole.Members[0] || got.Content.Phase != state.Present {
		t.Errorf("%+v, %v", got, err)
	}
	for _, spoil := range []func(*groupRecord){
		func(r *groupRecord) { r.Group = testKey("h") },
		func(r *groupRecord) { r.Name = "" },
		func(r *groupRecord) { r.Spec.Driver = "" },
		func(r *groupRecord) { r.Handle = "" },
		func(r *groupRecord) { r.Members = nil },
		func(r *groupRecord) { r.Members = []groupMember{{Volume: "v", Phase: state.Present}} },
	} {
		r := whole
		spoil(&r)
		b, _ := groupBucket().encode("default/g", r)
		if _, err := groupBucket().decode("default/g", b); err == nil {
			t.Errorf("%+v is read", r)
		}
	}
	if _, err := groupBucket().decode("default/g", []byte(`{"version":2}`)); err == nil {
		t.Error("a newer version is read")
	}
}

// groupLife is what happens to two groups; any part of it may fail, since the process may die at any time.
func groupLife(h *fakeNode) {
	h.c.cfg.Freezer = &stills{}
	h.up()
	h.set(testClaim("a", mib))
	h.set(testClaim("b", mib))
	a, _ := h.c.Claim(testKey("a"))
	b, _ := h.c.Claim(testKey("b"))
	if a.Volume != nil && b.Volume != nil {
		h.setGroup(testGroup("g", a.Volume.Handle, b.Volume.Handle))
		h.setGroup(testGroup("k", a.Volume.Handle, b.Volume.Handle))
	}
	settleFor(time.Hour)
	h.c.RemoveGroup(testKey("g"))
	_ = h.c.DeleteGroup(h.t.Context(), testKey("g"), false)
	settleFor(time.Hour)
}

// groupAfterlife checks that after a crash g is gone and k exists once.
func groupAfterlife(h *fakeNode) {
	h.t.Helper()
	h.end()
	h.disk.dieAt, h.disk.onDeath, h.backend.fault = 0, nil, nil
	h.live()
	h.c.cfg.Freezer = &stills{}
	h.up()
	k := h.pair()
	k.Key, k.UID = testKey("k"), "uid-k"
	h.setGroup(k)
	if g, ok := h.c.Group(testKey("g")); ok && g.Phase != Deleting {
		if err := h.c.DeleteGroup(h.t.Context(), testKey("g"), false); err != nil {
			h.t.Errorf("DeleteGroup: %v", err)
		}
	}
	settleFor(time.Hour)
	if got := h.c.Groups(); len(got) != 1 || got[0].Phase != Ready || h.backend.made() != 2 || h.disk.count(GroupBucket) != 1 ||
		len(h.c.Snapshots()) != 2 || h.disk.count(SnapshotBucket) != 0 || h.snapshot("k-a").Phase != Ready {
		h.t.Errorf("in the end: %+v, %+v, backend %v, records %q", got, h.c.Snapshots(), h.backend.cuts, h.disk.groups)
	}
}

// A crash at any commit and during any call loses no snapshot of a group and duplicates none.
func TestACrashAtEveryCommitLosesAndDoublesNoGroup(t *testing.T) {
	for what, newBackend := range bothDrivers {
		for _, torn := range []bool{false, true} {
			for n, died := 1, true; died; n++ {
				died = false
				t.Run(fmt.Sprintf("%s/torn=%v/commit=%d", what, torn, n), func(t *testing.T) {
					b := newBackend()
					b.looks = 1
					bubble(t, b, func(_ *testing.T, h *fakeNode) {
						h.disk.dieAt, h.disk.torn = n, torn
						h.disk.onDeath = func() { died = true; h.cancel() }
						groupLife(h)
						groupAfterlife(h)
					})
				})
				if !died && n < 10 {
					t.Errorf("the life has only %d commits", n)
				}
			}
		}
	}
}

// Sidecars: SS-20.
func TestACrashDuringEveryCallLosesAndDoublesNoGroup(t *testing.T) {
	for what, newBackend := range bothDrivers {
		for _, effect := range []bool{false, true} {
			for n, died := 1, true; died; n++ {
				died = false
				t.Run(fmt.Sprintf("%s/effect=%v/call=%d", what, effect, n), func(t *testing.T) {
					b := newBackend()
					bubble(t, b, func(_ *testing.T, h *fakeNode) {
						calls := 0
						b.fault = func(_ string, req proto.Message) fault {
							if req == nil {
								return fault{}
							}
							if calls++; calls != n {
								return fault{}
							}
							died = true
							h.cancel()
							if effect {
								return fault{after: status.Error(codes.Canceled, "died")}
							}
							return fault{before: status.Error(codes.Canceled, "died")}
						}
						groupLife(h)
						groupAfterlife(h)
					})
				})
				if !died && n < 5 {
					t.Errorf("the life has only %d calls", n)
				}
			}
		}
	}
}
