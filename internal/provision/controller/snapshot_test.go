package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
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

func (b *backend) cut(req *csi.CreateSnapshotRequest) (proto.Message, error) {
	s := b.cuts[req.GetName()]
	if s == nil {
		if b.byHandle(req.GetSourceVolumeId()) == nil && !strings.HasPrefix(req.GetSourceVolumeId(), "static") {
			return nil, status.Error(codes.NotFound, "source volume")
		}
		b.next++
		s = &csi.Snapshot{
			SnapshotId: fmt.Sprintf("cut-%d", b.next), SourceVolumeId: req.GetSourceVolumeId(), SizeBytes: mib,
			CreationTime: timestamppb.New(time.Unix(1e9, 0)),
		}
		b.cuts[req.GetName()] = s
	}
	if s.GetSourceVolumeId() != req.GetSourceVolumeId() {
		b.breach("CreateSnapshot %s of volume %s, and before of %s", req.GetName(), req.GetSourceVolumeId(), s.GetSourceVolumeId())
	}
	b.look(s)
	return &csi.CreateSnapshotResponse{Snapshot: proto.Clone(s).(*csi.Snapshot)}, nil
}

func (b *backend) look(s *csi.Snapshot) {
	if b.looks--; b.looks < 0 {
		s.ReadyToUse = true
	}
}

func (b *backend) cutOf(id string) *csi.Snapshot {
	for _, s := range b.cuts {
		if s.GetSnapshotId() == id {
			return s
		}
	}
	return nil
}

func (b *backend) list(req *csi.ListSnapshotsRequest) (proto.Message, error) {
	resp := &csi.ListSnapshotsResponse{}
	if req.GetSnapshotId() == "" {
		for _, s := range b.cuts {
			resp.Entries = append(resp.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: proto.Clone(s).(*csi.Snapshot)})
		}
		slices.SortFunc(resp.Entries, func(x, y *csi.ListSnapshotsResponse_Entry) int {
			return strings.Compare(x.GetSnapshot().GetSnapshotId(), y.GetSnapshot().GetSnapshotId())
		})
	}
	if s := b.cutOf(req.GetSnapshotId()); s != nil {
		b.look(s)
		resp.Entries = append(resp.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: proto.Clone(s).(*csi.Snapshot)})
	}
	return resp, nil
}

func (b *backend) discard(req *csi.DeleteSnapshotRequest) (proto.Message, error) {
	for name, s := range b.cuts {
		if s.GetSnapshotId() == req.GetSnapshotId() {
			delete(b.cuts, name)
			return &csi.DeleteSnapshotResponse{}, nil
		}
	}
	return nil, status.Error(codes.NotFound, "snapshot")
}

func testSnapshot(name, volume string) Snapshot {
	return Snapshot{
		Key: testKey(name), UID: "uid-" + name, Claim: testKey("a"), Volume: volume,
		Class: SnapshotClass{Name: "cuts", Driver: "strict.example.com", Parameters: map[string]string{"kind": "cow"}},
	}
}

func (h *fakeNode) snap(s Snapshot) {
	h.c.SetSnapshot(s)
	synctest.Wait()
}

func (h *fakeNode) snapshot(name string) SnapshotStatus {
	h.t.Helper()
	s, ok := h.c.Snapshot(testKey(name))
	if !ok {
		h.t.Fatalf("snapshot %s: not listed; have %+v", name, h.c.Snapshots())
	}
	return s
}

// Until the journal records that a claim has its volume, the snapshot that it was made of stays: after a crash the
// next life makes the volume again.
func TestASnapshotStaysUntilItsClaimIsInTheJournal(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		h.set(testClaim("a", mib))
		h.snap(testSnapshot("s", h.bound(testKey("a")).Handle))
		restored := testClaim("b", mib)
		restored.Source = &DataSource{Snapshot: testKey("s")}
		b.fault = onCall("CreateVolume", func(string, proto.Message) fault {
			h.disk.refuse(Bucket)
			return fault{}
		})
		h.set(restored)
		h.c.RemoveClaim(testKey("b"))
		h.c.RemoveSnapshot(testKey("s"))
		if err := h.c.DeleteSnapshot(t.Context(), testKey("s"), false); !errors.Is(err, ErrInUse) {
			t.Errorf("the claim's record is not written, DeleteSnapshot: %v, want ErrInUse", err)
		}
		h.disk.refuse("")
		settleFor(time.Minute)
		if err := h.c.DeleteSnapshot(t.Context(), testKey("s"), false); err != nil {
			t.Errorf("DeleteSnapshot: %v", err)
		}
		settleFor(time.Minute)
		if got := h.c.Snapshots(); len(got) > 0 {
			t.Errorf("left: %+v", got)
		}
	})
}

// A snapshot with policy Retain stays even if it is deleted while it is being made.
//
// Sidecars: SS-13.
func TestASnapshotInTheMakingIsRetained(t *testing.T) {
	b := newBackend()
	b.fault = onCall("CreateSnapshot", func(string, proto.Message) fault {
		return fault{after: status.Error(codes.DeadlineExceeded, "lost")}
	})
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		h.set(testClaim("a", mib))
		s := testSnapshot("s", h.bound(testKey("a")).Handle)
		s.Class.Retain = true
		h.snap(s)
		h.c.RemoveSnapshot(testKey("s"))
		if err := h.c.DeleteSnapshot(t.Context(), testKey("s"), false); !errors.Is(err, ErrRetained) {
			t.Errorf("DeleteSnapshot: %v, want ErrRetained", err)
		}
		if err := h.c.DeleteSnapshot(t.Context(), testKey("s"), true); err != nil {
			t.Errorf("DeleteSnapshot with its data: %v", err)
		}
	})
}

// A snapshot is made, and a claim is made of it. It is deleted on request and when no claim waits for it, not because
// no source lists it.
//
// Sidecars: SP-26, SS-02, SS-04, SS-24.
func TestASnapshotComesIsRestoredAndGoes(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		h.set(testClaim("a", mib))
		restored := testClaim("b", mib)
		restored.Source = &DataSource{Snapshot: testKey("s")}
		h.set(restored)
		if got := h.status(testKey("b")).Reason; !strings.Contains(got, "snapshot default/s") || !strings.Contains(got, "was not found") {
			t.Errorf("a claim of a snapshot that is not there: %q", got)
		}
		h.snap(testSnapshot("s", h.bound(testKey("a")).Handle))
		s := h.snapshot("s")
		if s.Phase != Ready || !s.Ready || s.Handle != "cut-2" || s.Content != "snapcontent-uid-s" || s.SizeBytes != mib ||
			!s.Created.Equal(time.Unix(1e9, 0)) || s.Reason != "" || s.ReclaimPolicy != Delete {
			t.Errorf("%+v", s)
		}
		h.bound(testKey("b"))
		if err := h.c.DeleteSnapshot(t.Context(), testKey("s"), false); !errors.Is(err, ErrListed) {
			t.Errorf("delete of one that is listed: %v", err)
		}
		h.c.RemoveSnapshot(testKey("s"))
		settleFor(time.Hour)
		if s := h.snapshot("s"); s.Phase != Released || len(b.cuts) != 1 {
			t.Errorf("%+v, and %d at the backend", s, len(b.cuts))
		}
		if err := h.c.DeleteSnapshot(t.Context(), testKey("s"), false); err != nil {
			t.Error(err)
		}
		settleFor(time.Hour)
		if _, ok := h.c.Snapshot(testKey("s")); ok || len(b.cuts) != 0 || len(h.disk.cuts) != 0 {
			t.Errorf("after its deletion: %v, %d at the backend, records %q", ok, len(b.cuts), h.disk.cuts)
		}
		if err := h.c.DeleteSnapshot(t.Context(), testKey("s"), false); !errors.Is(err, ErrNotFound) {
			t.Errorf("again: %v", err)
		}
		wantCalls(t, b, "CreateVolume pvc-uid-a", "CreateSnapshot vol-1", "CreateVolume pvc-uid-b", "DeleteSnapshot cut-2")
	})
}

// A snapshot is not deleted while a claim is to be made of it, nor if its policy is Retain.
//
// Sidecars: SS-12, SS-13.
func TestSnapshotsThatStay(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		h.set(testClaim("a", mib))
		s := testSnapshot("s", h.bound(testKey("a")).Handle)
		s.Class.Retain = true
		h.snap(s)
		restored := testClaim("b", mib/2)
		restored.Source = &DataSource{Snapshot: testKey("s")}
		h.set(restored)
		if got := h.status(testKey("b")).Reason; !strings.Contains(got, "at least 1048576") {
			t.Errorf("a claim that is too small: %q", got)
		}
		h.c.RemoveSnapshot(testKey("s"))
		if err := h.c.DeleteSnapshot(t.Context(), testKey("s"), false); !errors.Is(err, ErrRetained) {
			t.Errorf("one that is to be retained: %v", err)
		}
		if err := h.c.DeleteSnapshot(t.Context(), testKey("s"), true); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "default/b") {
			t.Errorf("one that a claim waits for: %v", err)
		}
		h.c.RemoveClaim(testKey("b"))
		if err := h.c.DeleteSnapshot(t.Context(), testKey("s"), true); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if len(b.cuts) != 0 {
			t.Errorf("%d snapshots", len(b.cuts))
		}
	})
}

// While a snapshot of a volume is being made, the volume gets no other call and is not deleted; the backend notes
// overlapping calls.
//
// Sidecars: SS-14.
func TestASnapshotIsTheOneCallOfItsVolume(t *testing.T) {
	b := newBackend()
	var gate chan struct{}
	b.fault = onCall("CreateSnapshot", func(string, proto.Message) fault { return fault{wait: gate} })
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		gate = make(chan struct{})
		b.volumes["static"] = &stored{handle: "static-1", nodes: map[string]bool{}, req: &csi.CreateVolumeRequest{}}
		h.up()
		h.set(testClaim("a", mib))
		v := h.bound(testKey("a"))
		h.snap(testSnapshot("s", v.Handle))
		h.snap(testSnapshot("s2", v.Handle))
		h.set(testClaim("a", 2*mib))
		if got := h.status(testKey("a")).Reason; !strings.Contains(got, "CreateSnapshot for snapshot default/s is in flight") {
			t.Errorf("%q", got)
		}
		attached := make(chan error, 1)
		go func() { _, err := h.c.Attach(t.Context(), volumeOf(v)); attached <- err }()
		static := volumeOf(v)
		static.Spec.Handle, static.ID = "static-1", state.SharedID("strict.example.com", "static-1")
		other := testSnapshot("s3", "static-1")
		h.snap(other)
		go func() { _, err := h.c.Attach(t.Context(), static); attached <- err }()
		synctest.Wait()
		wantCalls(t, b, "CreateVolume pvc-uid-a", "CreateSnapshot vol-1", "CreateSnapshot static-1")
		close(gate)
		synctest.Wait()
		gate = nil
		for range 2 {
			if err := <-attached; err != nil {
				t.Errorf("Attach: %v", err)
			}
		}
		settleFor(time.Hour)
		if s, s2 := h.snapshot("s"), h.snapshot("s2"); s.Phase != Ready || s2.Phase != Ready {
			t.Errorf("%+v\n%+v", s, s2)
		}
		if v := h.bound(testKey("a")); v.CapacityBytes != 2*mib {
			t.Errorf("%d bytes", v.CapacityBytes)
		}
	})
}

// A volume is not deleted while a snapshot of it is being made, may exist, or is not ready; its claim says which.
//
// Sidecars: SS-14.
func TestAVolumeOutlivesItsSnapshotsCall(t *testing.T) {
	b := newBackend()
	b.looks = 1000
	b.fault = onCall("CreateSnapshot", func(string, proto.Message) fault {
		return fault{after: status.Error(codes.DeadlineExceeded, "slow")}
	})
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		h.set(testClaim("a", mib))
		handle := h.bound(testKey("a")).Handle
		h.snap(testSnapshot("s", handle))
		h.c.RemoveClaim(testKey("a"))
		if err := h.c.Delete(t.Context(), testKey("a"), false); err != nil {
			t.Fatal(err)
		}
		settleFor(time.Hour)
		if got := h.status(testKey("a")).Reason; len(b.names()) != 1 || got != "snapshot default/s of volume pvc-uid-a is being made" {
			t.Errorf("%q, volumes %v", got, b.names())
		}
		h.c.RemoveSnapshot(testKey("s"))
		settleFor(time.Hour)
		if got := h.status(testKey("a")).Reason; got != "snapshot default/s of volume pvc-uid-a is being made, and is no longer listed: list it again, or delete it" {
			t.Errorf("after its snapshot was withdrawn: %q", got)
		}
		h.snap(testSnapshot("s", handle))
		b.set(func() { b.fault = nil })
		settleFor(time.Hour)
		if got := h.status(testKey("a")).Reason; len(b.names()) != 1 || got != "snapshot default/s of volume pvc-uid-a is made and not ready yet" {
			t.Errorf("%q, volumes %v", got, b.names())
		}
		b.set(func() { b.looks = 0 })
		settleFor(time.Hour)
		if s := h.snapshot("s"); s.Phase != Ready || len(b.names()) != 0 {
			t.Errorf("%+v, volumes %v", s, b.names())
		}
	})
}

// The controller asks again for a snapshot that is not ready, with pauses, until it is. It uses ListSnapshots, which
// does not involve the volume, if the driver has it.
//
// Sidecars: SP-27, SS-05, SS-16.
func TestASnapshotThatIsNotReadyIsAskedForAgain(t *testing.T) {
	for _, lists := range []bool{false, true} {
		b := newBackend()
		b.looks = 3
		call := "CreateSnapshot vol-1"
		if lists {
			b.rpcs = append(b.rpcs, csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS)
			call = "ListSnapshots cut-2"
		}
		bubble(t, b, func(t *testing.T, h *fakeNode) {
			h.up()
			h.set(testClaim("a", mib))
			h.snap(testSnapshot("s", h.bound(testKey("a")).Handle))
			if s := h.snapshot("s"); s.Phase != Pending || s.Ready || !strings.Contains(s.Reason, "not ready yet") || s.Until.IsZero() {
				t.Errorf("%+v", s)
			}
			restored := testClaim("b", mib)
			restored.Source = &DataSource{Snapshot: testKey("s")}
			h.set(restored)
			if got := h.status(testKey("b")).Reason; !strings.Contains(got, "not ready yet") {
				t.Errorf("%q", got)
			}
			settleFor(time.Hour)
			if s := h.snapshot("s"); s.Phase != Ready || s.Retry.Attempts != 0 {
				t.Errorf("%+v", s)
			}
			h.bound(testKey("b"))
			wantCalls(t, b, "CreateVolume pvc-uid-a", "CreateSnapshot vol-1", call, call, call, "CreateVolume pvc-uid-b")
		})
	}
}

// A person can end a snapshot's wait: after a failure, after a failure that is not retried, and after the answer that
// it is not ready.
//
// Sidecars: SP-27, SS-28.
func TestASnapshotIsTriedAgainAtOnce(t *testing.T) {
	b := newBackend()
	b.looks = 1
	answer := codes.Unavailable
	b.fault = onCall("CreateSnapshot", func(string, proto.Message) fault {
		if answer == codes.OK {
			return fault{}
		}
		return fault{before: status.Error(answer, "no")}
	})
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		h.set(testClaim("a", mib))
		h.snap(testSnapshot("s", h.bound(testKey("a")).Handle))
		for attempts, next := range []codes.Code{codes.InvalidArgument, codes.OK, codes.OK} {
			s := h.snapshot("s")
			if s.Phase != Pending || s.Until.IsZero() && !s.Refused {
				t.Errorf("after %d attempts: %+v", attempts+1, s)
			}
			b.set(func() { answer = next })
			h.c.RetrySnapshot(testKey("none"))
			h.c.RetrySnapshot(testKey("s"))
			synctest.Wait()
		}
		if s := h.snapshot("s"); s.Phase != Ready {
			t.Errorf("%+v", s)
		}
		wantCalls(t, b, "CreateVolume pvc-uid-a", "CreateSnapshot vol-1", "CreateSnapshot vol-1", "CreateSnapshot vol-1", "CreateSnapshot vol-1")
	})
}

// If a person names a snapshot, the controller looks it up at a driver that lists snapshots, and otherwise believes
// the person.
//
// Sidecars: SS-05, SS-11.
func TestASnapshotThatAPersonNames(t *testing.T) {
	for _, lists := range []bool{false, true} {
		b := newBackend()
		if lists {
			b.rpcs = append(b.rpcs, csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS)
		}
		bubble(t, b, func(t *testing.T, h *fakeNode) {
			h.up()
			s := testSnapshot("s", "")
			s.Claim, s.Handle = Key{}, "cut-9"
			h.snap(s)
			if got := h.snapshot("s"); lists != (got.Phase == Pending) || lists != strings.Contains(got.Reason, "the driver has no snapshot cut-9") {
				t.Errorf("lists %v: %+v", lists, got)
			}
			b.set(func() {
				b.cuts["x"] = &csi.Snapshot{SnapshotId: "cut-9", SizeBytes: mib, SourceVolumeId: "v", ReadyToUse: true}
			})
			settleFor(time.Hour)
			if got := h.snapshot("s"); got.Phase != Ready || got.Handle != "cut-9" || lists != (got.SizeBytes == mib) {
				t.Errorf("lists %v: %+v", lists, got)
			}
			if slices.Contains(b.calls(), "CreateSnapshot ") {
				t.Errorf("%q", b.calls())
			}
		})
	}
}

// An unusable answer is a failure: the controller does not conclude that the snapshot exists.
//
// Sidecars: SS-24.
func TestAnswersToCreateSnapshotThatAreWrong(t *testing.T) {
	k := snapshotCall{op: snapshotOp{verb: createSnapshot, spec: snapshotSpec{Volume: "v"}}}
	for want, s := range map[string]*csi.Snapshot{
		"without a snapshot_id":        {SourceVolumeId: "v"},
		"at most":                      {SourceVolumeId: "v", SnapshotId: strings.Repeat("x", 5000)},
		`of volume "w" where one`:      {SourceVolumeId: "w", SnapshotId: "s"},
		"":                             {SourceVolumeId: "v", SnapshotId: "s", CreationTime: timestamppb.Now()},
		"answered OK without":          nil,
		"snapshot s where t was asked": {SourceVolumeId: "v", SnapshotId: "s"},
	} {
		k := k
		if strings.Contains(want, "where t") {
			k.rec.Handle = "t"
		}
		_, err := checkSnapshot(k, s)
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", s, err, want)
		}
	}
}

// A class names secrets by templates; its other reserved parameters are refused.
//
// Sidecars: SS-02, SS-06, SS-07.
func TestSecretsOfASnapshotClass(t *testing.T) {
	const name, namespace = reserved + "snapshotter-secret-name", reserved + "snapshotter-secret-namespace"
	s := testSnapshot("s", "v")
	for _, c := range []struct {
		params map[string]string
		want   state.SecretRef
		words  string
	}{
		{map[string]string{"a": "b"}, state.SecretRef{}, ""},
		{map[string]string{name: "x", namespace: "y"}, state.SecretRef{Name: "x", Namespace: "y"}, ""},
		{
			map[string]string{name: "${volumesnapshot.name}-${volumesnapshotcontent.name}", namespace: "${volumesnapshot.namespace}"},
			state.SecretRef{Name: "s-snapcontent-uid-s", Namespace: "default"},
			"",
		},
		{
			map[string]string{name: "x", namespace: "y", reserved + "group-snapshotter-secret-name": "g"},
			state.SecretRef{Name: "x", Namespace: "y"},
			"",
		},
		{map[string]string{name: "x"}, state.SecretRef{}, "without the other"},
		{map[string]string{name: "${pvc.name}", namespace: "y"}, state.SecretRef{}, `found "${pvc.name}"`},
		{map[string]string{name: "", namespace: "y"}, state.SecretRef{}, `found ""`},
		{map[string]string{reserved + "fstype": "xfs"}, state.SecretRef{}, "is reserved"},
	} {
		s.Class.Parameters = c.params
		got, problem := newSnapshotSpec(s)
		if (c.words == "") != (problem == "") || !strings.Contains(problem, c.words) || got.Secret != c.want || got.Parameters[name] != "" ||
			got.Parameters[reserved+"group-snapshotter-secret-name"] != "" {
			t.Errorf("%v: %+v, %q", c.params, got, problem)
		}
	}
	g, problem := newGroupSpec(Group{UID: "u", Class: SnapshotClass{Parameters: map[string]string{name: "x", "a": "b"}}}, false)
	if problem != "" || len(g.Parameters) != 1 {
		t.Errorf("a group's: %+v, %q", g, problem)
	}
}

// A snapshot of a claim without a volume is not refused: it is made once the volume exists.
//
// Sidecars: SS-08, SS-32.
func TestASnapshotWaitsForItsVolume(t *testing.T) {
	bubble(t, newBackend(), func(t *testing.T, h *fakeNode) {
		h.up()
		s := testSnapshot("s", "")
		s.Waits = "claim default/a has no volume yet"
		h.snap(s)
		if got := h.snapshot("s"); got.Refused || got.Reason != s.Waits || got.Phase != Pending {
			t.Errorf("%+v", got)
		}
		h.set(testClaim("a", mib))
		h.snap(testSnapshot("s", h.bound(testKey("a")).Handle))
		if got := h.snapshot("s"); got.Phase != Ready {
			t.Errorf("%+v", got)
		}
	})
}

// stills is a Freezer that records its calls.
type stills struct {
	err     error
	expired bool
	// refuses is the volume that cannot be frozen; "" for none.
	refuses state.VolumeID

	mu     sync.Mutex // guards the rest
	log    []string
	frozen int
}

func (s *stills) Freeze(_ context.Context, id state.VolumeID, limit time.Duration) (func(context.Context) bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil && (s.refuses == "" || s.refuses == id) {
		return nil, s.err
	}
	s.log = append(s.log, fmt.Sprintf("freeze %s %v", id, limit))
	s.frozen++
	return func(context.Context) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.log = append(s.log, "thaw")
		s.frozen--
		return s.expired
	}, nil
}

func (s *stills) Run(context.Context) error { return nil }

// A snapshot with a freeze is made while the file system is frozen, whatever the driver answers. Its consistency is
// crash if the freeze ended early or an answer was lost.
func TestASnapshotIsMadeWhileItsVolumeIsStill(t *testing.T) {
	for what, c := range map[string]struct {
		err     error // of the freeze
		answer  fault // to the first CreateSnapshot
		expired bool
		want    Consistency
		log     int // freezes and thaws
		words   string
	}{
		"frozen":              {want: Frozen, log: 2},
		"the limit ended it":  {expired: true, want: Crash, log: 2},
		"an answer was lost":  {answer: fault{after: status.Error(codes.DeadlineExceeded, "slow")}, want: Crash, log: 4},
		"it was turned down":  {answer: fault{before: status.Error(codes.ResourceExhausted, "full")}, want: Frozen, log: 4},
		"it cannot be frozen": {err: errors.New("nfs cannot be frozen"), words: "nfs cannot be frozen"},
	} {
		b := newBackend()
		first := true
		b.fault = onCall("CreateSnapshot", func(string, proto.Message) fault {
			if !first {
				return fault{}
			}
			first = false
			return c.answer
		})
		bubble(t, b, func(t *testing.T, h *fakeNode) {
			f := &stills{err: c.err, expired: c.expired}
			h.c.cfg.Freezer = f
			h.up()
			h.set(testClaim("a", mib))
			s := testSnapshot("s", h.bound(testKey("a")).Handle)
			s.Freeze = 10 * time.Second
			h.snap(s)
			settleFor(time.Minute)
			got := h.snapshot("s")
			if c.words != "" {
				if got.Phase != Pending || !strings.Contains(got.Reason, c.words) || len(b.cuts) != 0 {
					t.Errorf("%s: %+v", what, got)
				}
				return
			}
			if got.Phase != Ready || got.Consistency != c.want || len(f.log) != c.log || !strings.HasSuffix(f.log[0], "vol-1 10s") {
				t.Errorf("%s: %+v, %q", what, got, f.log)
			}
		})
	}
}

// snapshotLife is what happens to a snapshot; any part of it may fail, since the process may die at any time.
func snapshotLife(h *fakeNode) {
	h.up()
	h.set(testClaim("a", mib))
	if s, ok := h.c.Claim(testKey("a")); ok && s.Volume != nil {
		h.snap(testSnapshot("s", s.Volume.Handle))
		h.snap(testSnapshot("t", s.Volume.Handle))
	}
	settleFor(time.Hour)
	h.c.RemoveSnapshot(testKey("s"))
	_ = h.c.DeleteSnapshot(h.t.Context(), testKey("s"), false)
	settleFor(time.Hour)
}

// snapshotAfterlife checks that after a crash s is gone and t exists once.
func snapshotAfterlife(h *fakeNode) {
	h.t.Helper()
	h.end()
	h.disk.dieAt, h.disk.onDeath, h.backend.fault = 0, nil, nil
	h.live()
	h.up()
	h.set(testClaim("a", mib))
	v := h.bound(testKey("a")).Handle
	h.snap(testSnapshot("t", v))
	if s, ok := h.c.Snapshot(testKey("s")); ok && s.Phase != Deleting {
		if err := h.c.DeleteSnapshot(h.t.Context(), testKey("s"), false); err != nil {
			h.t.Errorf("DeleteSnapshot: %v", err)
		}
	}
	settleFor(time.Hour)
	got := h.c.Snapshots()
	if len(got) != 1 || got[0].Phase != Ready || len(h.backend.cuts) != 1 || h.backend.cuts["snapshot-uid-t"] == nil ||
		len(h.disk.cuts) != 1 {
		h.t.Errorf("in the end: %+v, backend %v, records %q", got, h.backend.cuts, h.disk.cuts)
	}
}

// Sidecars: SS-02.
func TestACrashAtEveryCommitLosesAndDoublesNoSnapshot(t *testing.T) {
	for _, torn := range []bool{false, true} {
		for n, died := 1, true; died; n++ {
			died = false
			t.Run(fmt.Sprintf("torn=%v/commit=%d", torn, n), func(t *testing.T) {
				b := newBackend()
				b.looks = 1
				bubble(t, b, func(_ *testing.T, h *fakeNode) {
					h.disk.dieAt, h.disk.torn = n, torn
					h.disk.onDeath = func() { died = true; h.cancel() }
					snapshotLife(h)
					snapshotAfterlife(h)
				})
			})
			if !died && n < 8 {
				t.Errorf("the life has only %d commits", n)
			}
		}
	}
}

// Sidecars: SS-03.
func TestACrashDuringEveryCallLosesAndDoublesNoSnapshot(t *testing.T) {
	for _, effect := range []bool{false, true} {
		for n, died := 1, true; died; n++ {
			died = false
			t.Run(fmt.Sprintf("effect=%v/call=%d", effect, n), func(t *testing.T) {
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
					snapshotLife(h)
					snapshotAfterlife(h)
				})
			})
			if !died && n < 4 {
				t.Errorf("the life has only %d calls", n)
			}
		}
	}
}

// The controller tells the driver names of objects only if the class says so.
//
// Sidecars: SP-12, SS-27.
func TestNamesThatTheDriverIsTold(t *testing.T) {
	for _, tells := range []bool{false, true} {
		claim, snapshot := testClaim("a", mib), testSnapshot("s", "v")
		claim.Class.Metadata, snapshot.Class.Metadata = tells, tells
		made, problem := newSpec(claim, facts{})
		cut, problem2 := newSnapshotSpec(snapshot)
		want, wantCut := map[string]string{"kind": "ssd"}, map[string]string{"kind": "cow"}
		if tells {
			want["csi.storage.k8s.io/pvc/name"], want["csi.storage.k8s.io/pvc/namespace"] = "a", "default"
			want["csi.storage.k8s.io/pv/name"] = "pvc-uid-a"
			wantCut["csi.storage.k8s.io/volumesnapshot/name"], wantCut["csi.storage.k8s.io/volumesnapshot/namespace"] = "s", "default"
			wantCut["csi.storage.k8s.io/volumesnapshotcontent/name"] = "snapcontent-uid-s"
		}
		if problem.waits() || problem2 != "" || !maps.Equal(made.Parameters, want) || !maps.Equal(cut.Parameters, wantCut) {
			t.Errorf("tells %v: %v, %v, %v%q", tells, made.Parameters, cut.Parameters, problem.reason, problem2)
		}
	}
}

// Two snapshots with one UID would be one at the driver, so the second waits. A driver gets no more calls at a time
// than allowed, and all calls in the end.
//
// Sidecars: SS-28, SS-29.
func TestSnapshotsWaitForTheirTurnAndTheirName(t *testing.T) {
	b := newBackend()
	gate := make(chan struct{})
	b.fault = onCall("CreateSnapshot", func(string, proto.Message) fault { return fault{wait: gate} })
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		gate = make(chan struct{})
		h.up()
		for i := range 7 {
			h.c.SetSnapshot(testSnapshot(fmt.Sprint("s", i), fmt.Sprint("static-", i)))
		}
		synctest.Wait()
		if got := len(b.calls()); got != 4 {
			t.Errorf("%d calls at a time, want 4", got)
		}
		if got := h.snapshot("s6").Reason; !strings.Contains(got, "maximum of calls in flight") {
			t.Errorf("%q", got)
		}
		close(gate)
		synctest.Wait()
		for i := range 7 {
			if s := h.snapshot(fmt.Sprint("s", i)); s.Phase != Ready {
				t.Errorf("%+v", s)
			}
		}
		twin := testSnapshot("twin", "static-9")
		twin.UID = "uid-s1"
		h.snap(twin)
		if got := h.snapshot("twin").Reason; !strings.Contains(got, "snapshot default/s1") {
			t.Errorf("%q", got)
		}
		h.c.RemoveSnapshot(testKey("s1"))
		if err := h.c.DeleteSnapshot(t.Context(), testKey("s1"), false); err != nil {
			t.Fatal(err)
		}
		settleFor(time.Minute)
		if s := h.snapshot("twin"); s.Phase != Ready {
			t.Errorf("%+v", s)
		}
	})
}

// If a snapshot's name is removed and listed again for another claim, the controller does not take it for the stored
// one: no claim is made of it, and its reason names the stored one.
//
// Sidecars: SS-11.
func TestASnapshotOfAnotherClaimIsNotTakenForIt(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		h.set(testClaim("a", mib))
		s := testSnapshot("s", h.bound(testKey("a")).Handle)
		h.snap(s)
		h.c.RemoveSnapshot(s.Key)
		other := s
		other.Claim, other.Volume = testKey("b"), "vol-b"
		h.snap(other)
		if got := h.snapshot("s"); got.Phase != Pending || got.Ready || !got.Refused || !strings.Contains(got.Reason, "of claim default/a exists") {
			t.Errorf("%+v", got)
		}
		restored := testClaim("c", mib)
		restored.Source = &DataSource{Snapshot: s.Key}
		h.set(restored)
		if got := h.status(testKey("c")); got.Volume != nil || !strings.Contains(got.Reason, "does not match") {
			t.Errorf("%+v", got)
		}
		named := s
		named.Claim, named.Volume, named.Handle = Key{}, "", "cut-9"
		h.snap(named)
		if got := h.snapshot("s"); got.Ready || !strings.Contains(got.Reason, "cut-9") {
			t.Errorf("%+v", got)
		}
		h.snap(s)
		h.bound(testKey("c"))
		if got := h.snapshot("s"); got.Phase != Ready {
			t.Errorf("%+v", got)
		}
	})
}

// When an operator changes the policy of a content, the new policy holds and is durable.
//
// Sidecars: SS-13.
func TestThePolicyOfAContentMayChange(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.up()
		s := testSnapshot("s", "")
		s.Claim, s.Handle = Key{}, "cut-9"
		h.snap(s)
		s.Class.Retain = true
		h.snap(s)
		h.end()
		h.live()
		h.up()
		if got := h.snapshot("s"); got.ReclaimPolicy != Retain {
			t.Errorf("%+v", got)
		}
		if err := h.c.DeleteSnapshot(t.Context(), s.Key, false); !errors.Is(err, ErrRetained) {
			t.Errorf("%v", err)
		}
	})
}

// Two snapshots of one UID would have one name at the driver. One of them waits, even if both are planned in one step.
func TestTwoSnapshotsOfOneUIDAreNotAskedForTogether(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.set(testClaim("a", mib))
		h.set(testClaim("b", mib))
		h.up()
		one, two := testSnapshot("s", h.bound(testKey("a")).Handle), testSnapshot("t", h.bound(testKey("b")).Handle)
		two.UID, two.Claim = one.UID, testKey("b")
		h.c.DriverDown(b.name)
		h.c.SetSnapshot(one)
		h.snap(two)
		h.up()
		settleFor(time.Hour)
		if s := h.snapshot("s"); s.Phase != Ready {
			t.Errorf("the first: %+v", s)
		}
		if s := h.snapshot("t"); s.Phase != Pending || !strings.Contains(s.Reason, "two cannot have the same UID") {
			t.Errorf("the second: %+v", s)
		}
	})
}

// A snapshot that was not asked for, because its intent could not be written, keeps its name from no other.
//
// Sidecars: SS-03.
func TestASnapshotThatIsNotBegunFreesItsName(t *testing.T) {
	b := newBackend()
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.set(testClaim("a", mib))
		h.up()
		one := testSnapshot("s", h.bound(testKey("a")).Handle)
		two := one
		two.Key = testKey("t")
		h.disk.refuse(SnapshotBucket)
		h.snap(one)
		h.c.RemoveSnapshot(one.Key)
		synctest.Wait()
		h.disk.refuse("")
		h.snap(two)
		settleFor(time.Hour)
		if s := h.snapshot("t"); s.Phase != Ready {
			t.Errorf("the second: %+v", s)
		}
	})
}
