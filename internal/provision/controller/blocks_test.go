package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
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

// NewStream serves SnapshotMetadata. It implements grpc.ClientConnInterface.
func (b *backend) NewStream(ctx context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	return &blockStream{ctx: ctx, b: b, call: method[strings.LastIndex(method, "/")+1:]}, nil
}

// blockStream is one stream of a backend.
type blockStream struct {
	grpc.ClientStream
	ctx   context.Context
	b     *backend
	call  string
	steps []any
}

func (s *blockStream) SendMsg(m any) error {
	req := proto.Clone(m.(proto.Message))
	s.b.set(func() {
		secrets := req.(interface{ GetSecrets() map[string]string }).GetSecrets()
		if !maps.Equal(secrets, s.b.secret) {
			s.b.breach("%s came with secrets %v, want %v", s.call, secrets, s.b.secret)
		}
		s.b.log = append(s.b.log, s.call+" "+blocksAsked(req))
	})
	s.steps = s.b.blocks(req)
	return nil
}

// blocksAsked abbreviates a request: "cut-1 cut-2 from 0".
func blocksAsked(m proto.Message) string {
	switch r := m.(type) {
	case *csi.GetMetadataAllocatedRequest:
		return fmt.Sprintf("%s from %d", r.GetSnapshotId(), r.GetStartingOffset())
	case *csi.GetMetadataDeltaRequest:
		return fmt.Sprintf("%s %s from %d", r.GetBaseSnapshotId(), r.GetTargetSnapshotId(), r.GetStartingOffset())
	}
	return ""
}

func (s *blockStream) CloseSend() error { return nil }

func (s *blockStream) RecvMsg(m any) error {
	for {
		if s.ctx.Err() != nil {
			return status.FromContextError(s.ctx.Err()).Err()
		}
		if len(s.steps) == 0 {
			return io.EOF
		}
		step := s.steps[0]
		s.steps = s.steps[1:]
		switch step := step.(type) {
		case error:
			return step
		case blockAnswer:
			proto.Merge(m.(proto.Message), step.as(m))
			return nil
		case chan struct{}:
			select {
			case <-step:
			case <-s.ctx.Done():
			}
		}
	}
}

// blockAnswer is a response message of either call.
type blockAnswer struct {
	style    csi.BlockMetadataType
	capacity int64
	ranges   []Range
}

func (a blockAnswer) as(m any) proto.Message {
	var all []*csi.BlockMetadata
	for _, r := range a.ranges {
		all = append(all, &csi.BlockMetadata{ByteOffset: r.Offset, SizeBytes: r.Size})
	}
	if _, ok := m.(*csi.GetMetadataAllocatedResponse); ok {
		return &csi.GetMetadataAllocatedResponse{BlockMetadataType: a.style, VolumeCapacityBytes: a.capacity, BlockMetadata: all}
	}
	return &csi.GetMetadataDeltaResponse{BlockMetadataType: a.style, VolumeCapacityBytes: a.capacity, BlockMetadata: all}
}

// message returns a message with ranges of any length, of a volume of one MiB.
func message(ranges ...Range) blockAnswer {
	return blockAnswer{csi.BlockMetadataType_VARIABLE_LENGTH, mib, ranges}
}

// tells returns a backend that sends the same answer to every request.
func tells(steps ...any) *backend {
	b := newBackend()
	b.services = append(b.services, csi.PluginCapability_Service_SNAPSHOT_METADATA_SERVICE)
	b.blocks = func(proto.Message) []any { return steps }
	return b
}

// cutTwice brings the driver up and makes snapshots old and new of claim a.
func (h *fakeNode) cutTwice() {
	h.t.Helper()
	h.up()
	h.set(testClaim("a", mib))
	for _, name := range []string{"old", "new"} {
		h.snap(testSnapshot(name, h.bound(testKey("a")).Handle))
	}
	h.backend.set(func() { h.backend.log = nil })
}

// between returns a query for the blocks that changed.
func between(base, name string) BlockQuery {
	q := BlockQuery{Snapshot: testKey(name)}
	if base != "" {
		q.Base = testKey(base)
	}
	return q
}

// collect reads the whole answer to q.
func (h *fakeNode) collect(q BlockQuery) (got []Range, capacity int64, err error) {
	h.t.Helper()
	capacity, err = h.c.Blocks(h.t.Context(), q, func(r []Range) error {
		got = append(got, r...)
		return nil
	})
	return got, capacity, err
}

// The controller passes the driver's stream on message by message, with the secret of the snapshot's class, for one
// snapshot and for two, even if no source lists them any more.
func TestBlocksAreHandedOn(t *testing.T) {
	b := tells(message(Range{0, 4}, Range{4, 4}), message(), message(Range{10, 1}))
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.cutTwice()
		b.secret = map[string]string{"password": "x"}
		h.secrets[state.SecretRef{Namespace: "kube", Name: "login"}] = b.secret
		s := testSnapshot("secret", h.bound(testKey("a")).Handle)
		s.Class.Parameters = map[string]string{"csi.storage.k8s.io/snapshotter-secret-name": "login", "csi.storage.k8s.io/snapshotter-secret-namespace": "kube"}
		h.snap(s)
		h.c.RemoveSnapshot(testKey("old"))
		b.set(func() { b.log = nil })
		var messages [][]Range
		capacity, err := h.c.Blocks(t.Context(), between("old", "secret"), func(r []Range) error {
			messages = append(messages, r)
			return nil
		})
		if err != nil || capacity != mib || fmt.Sprint(messages) != "[[{0 4} {4 4}] [{10 1}]]" {
			t.Errorf("got %v, %d, %v", messages, capacity, err)
		}
		if got, _, err := h.collect(between("", "secret")); err != nil || len(got) != 3 {
			t.Errorf("of one: %v, %v", got, err)
		}
		wantCalls(t, b, "GetMetadataDelta cut-2 cut-4 from 0", "GetMetadataAllocated cut-4 from 0")
		stop := errors.New("the reader has gone")
		if _, err := h.c.Blocks(t.Context(), between("old", "secret"), func([]Range) error { return stop }); !errors.Is(err, stop) {
			t.Errorf("a reader that stops: %v", err)
		}
	})
}

// For two identical volumes a driver may send no message at all.
func TestNoBlocksAtAll(t *testing.T) {
	bubble(t, tells(), func(t *testing.T, h *fakeNode) {
		h.cutTwice()
		if got, capacity, err := h.collect(between("old", "new")); len(got) > 0 || capacity != 0 || err != nil {
			t.Errorf("got %v, %d, %v", got, capacity, err)
		}
	})
}

// If an answer breaks CSI's rules, the error names the driver and says what was wrong.
func TestWrongBlocksAreRefused(t *testing.T) {
	fixed := func(ranges ...Range) blockAnswer {
		return blockAnswer{csi.BlockMetadataType_FIXED_LENGTH, mib, ranges}
	}
	for what, c := range map[string]struct {
		answer []any
		want   string
	}{
		"no style":         {[]any{blockAnswer{csi.BlockMetadataType_UNKNOWN, mib, nil}}, "block_metadata_type is UNKNOWN"},
		"another style":    {[]any{message(), fixed()}, "block_metadata_type is FIXED_LENGTH, and was VARIABLE_LENGTH before"},
		"no size":          {[]any{blockAnswer{csi.BlockMetadataType_FIXED_LENGTH, 0, nil}}, "volume_capacity_bytes is 0"},
		"another size":     {[]any{message(), blockAnswer{csi.BlockMetadataType_VARIABLE_LENGTH, 2 * mib, nil}}, "volume_capacity_bytes is 2097152, and was 1048576 before"},
		"empty range":      {[]any{message(Range{0, 0})}, "byte_offset 0 with size_bytes 0"},
		"before the begin": {[]any{message(Range{-1, 2})}, "byte_offset -1 with size_bytes 2"},
		"beyond the end":   {[]any{message(Range{mib - 1, 2})}, "is outside a volume of 1048576 bytes"},
		"far beyond":       {[]any{message(Range{mib - 1, 1<<63 - 1})}, "is outside a volume"},
		"overlap":          {[]any{message(Range{0, 8}, Range{7, 8})}, "byte_offset 7 comes after a range that ends at 8"},
		"backwards":        {[]any{message(Range{8, 8}), message(Range{0, 8})}, "byte_offset 0 comes after a range that ends at 16"},
		"not fixed":        {[]any{fixed(Range{0, 8}), fixed(Range{8, 4})}, "size_bytes at byte_offset 8 is 4, and was 8 before"},
	} {
		bubble(t, tells(c.answer...), func(t *testing.T, h *fakeNode) {
			h.cutTwice()
			_, _, err := h.collect(between("old", "new"))
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "driver strict.example.com") || !strings.Contains(err.Error(), "GetMetadataDelta") {
				t.Errorf("%s: %v", what, err)
			}
			if n := len(h.backend.calls()); n != 1 {
				t.Errorf("%s: %d calls", what, n)
			}
		})
	}
}

// After a broken stream the controller continues behind the last range, even if the driver has restarted meanwhile.
// It passes on once a range that the driver sends twice.
func TestABrokenStreamIsGoneOnWith(t *testing.T) {
	lost := status.Error(codes.Unavailable, "the driver died")
	bubble(t, tells(), func(t *testing.T, h *fakeNode) {
		b := h.backend
		round := 0
		b.blocks = func(proto.Message) []any {
			round++
			switch round {
			case 1:
				h.c.DriverDown(b.name)
				return []any{message(Range{0, 8}, Range{8, 8}), lost}
			case 2:
				return []any{message(Range{10, 10}, Range{30, 2}), status.Error(codes.Canceled, "the client connection is closing")}
			case 3:
				return []any{lost}
			}
			return []any{message(Range{40, 1})}
		}
		h.cutTwice()
		time.AfterFunc(2500*time.Millisecond, func() { h.c.DriverUp(b.driver()) })
		got, _, err := h.collect(between("old", "new"))
		if want := []Range{{0, 8}, {8, 8}, {16, 4}, {30, 2}, {40, 1}}; err != nil || !slices.Equal(got, want) {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
		wantCalls(t, b, "GetMetadataDelta cut-2 cut-3 from 0", "GetMetadataDelta cut-2 cut-3 from 16", "GetMetadataDelta cut-2 cut-3 from 32",
			"GetMetadataDelta cut-2 cut-3 from 32")
	})
	for what, c := range map[string]struct {
		answer []any
		calls  int
		want   string
	}{
		"for ever":        {[]any{lost}, 1 + maxRetries, "the driver died"},
		"for good":        {[]any{status.Error(codes.NotFound, "no such snapshot here")}, 1, "no such snapshot here"},
		"ends before":     {[]any{message(Range{0, 8}), message(Range{8, 8}), lost}, 2, "byte_offset 0 with size_bytes 8 ends before starting_offset 16"},
		"not in the call": {[]any{status.Error(codes.FailedPrecondition, "not tracked")}, 1, "not tracked"},
	} {
		bubble(t, tells(c.answer...), func(t *testing.T, h *fakeNode) {
			h.cutTwice()
			_, _, err := h.collect(between("old", "new"))
			if n := len(h.backend.calls()); err == nil || !strings.Contains(err.Error(), c.want) || n != c.calls {
				t.Errorf("%s: %d calls, %v", what, n, err)
			}
		})
	}
}

// A stream that breaks behind the volume's last byte is complete. The last range of a fixed length may reach beyond a
// volume whose size is no multiple of it.
func TestTheEndOfAVolumeEndsItsBlocks(t *testing.T) {
	for what, answer := range map[string][]any{
		"broken": {message(Range{0, 8}, Range{mib - 4, 4}), status.Error(codes.Unavailable, "the driver died")},
		"fixed":  {blockAnswer{csi.BlockMetadataType_FIXED_LENGTH, mib, []Range{{0, 8}, {mib - 4, 8}}}},
	} {
		bubble(t, tells(answer...), func(t *testing.T, h *fakeNode) {
			h.cutTwice()
			got, capacity, err := h.collect(between("old", "new"))
			if want := []Range{{0, 8}, {mib - 4, 4}}; err != nil || !slices.Equal(got, want) || capacity != mib {
				t.Errorf("%s: %v of %d, %v", what, got, capacity, err)
			}
			if n := len(h.backend.calls()); n != 1 {
				t.Errorf("%s: %d calls", what, n)
			}
		})
	}
}

// The controller asks for the blocks of a group's snapshots with the secret of the group's class.
//
// Sidecars: SS-23.
func TestTheSnapshotsOfAGroupHaveItsSecret(t *testing.T) {
	r := groupRecord{Group: testKey("g"), Spec: groupSpec{Secret: state.SecretRef{Namespace: "shop", Name: "key"}}}
	if got := r.snapshot(groupMember{Claim: testKey("a"), Volume: "v"}); got.Spec.Secret != r.Spec.Secret {
		t.Errorf("%+v", got.Spec)
	}
}

// The controller gives up a driver that hangs in the middle; a slow reader does not count as the driver's silence. A
// caller that gives up returns at once, even during a pause.
func TestSilenceIsBounded(t *testing.T) {
	bubble(t, tells(), func(t *testing.T, h *fakeNode) {
		hangs := make(chan struct{}) // made in the bubble
		h.backend.blocks = func(proto.Message) []any { return []any{message(Range{0, 8}), hangs} }
		h.cutTwice()
		began := time.Now()
		capacity, err := h.c.Blocks(t.Context(), between("old", "new"), func([]Range) error {
			time.Sleep(2 * DefaultDeadline)
			return nil
		})
		if took := time.Since(began); !errors.Is(err, errSilent) || took != 3*DefaultDeadline || capacity != 0 {
			t.Errorf("after %v: %d, %v", took, capacity, err)
		}
	})
	bubble(t, tells(status.Error(codes.Unavailable, "away")), func(t *testing.T, h *fakeNode) {
		h.cutTwice()
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := h.c.Blocks(ctx, between("old", "new"), func([]Range) error { return nil })
			ended <- err
		}()
		synctest.Wait()
		gone := errors.New("the caller has gone")
		cancel(gone)
		if err := <-ended; !errors.Is(err, gone) {
			t.Errorf("in a pause: %v", err)
		}
	})
}

// If the records show that blocks cannot be compared, the controller asks no driver, and its refusal says why.
func TestBlocksThatCannotBeTold(t *testing.T) {
	b := tells(message())
	bubble(t, b, func(t *testing.T, h *fakeNode) {
		h.cutTwice()
		h.set(testClaim("b", mib))
		other := testSnapshot("other", h.bound(testKey("b")).Handle)
		other.Claim = testKey("b")
		h.snap(other)
		early := testSnapshot("early", h.bound(testKey("a")).Handle)
		h.snap(early)
		b.looks = 1 << 20
		h.snap(testSnapshot("making", h.bound(testKey("a")).Handle))
		b.set(func() { b.log = nil })
		named := Snapshot{Key: testKey("named"), UID: "uid-named", Handle: "cut-9", Class: SnapshotClass{Name: "cuts", Driver: b.name}}
		h.snap(named)
		h.c.post(func(context.Context) { // no driver here produces these records
			h.c.snapshots.entries[early.Key].rec.Created = time.Unix(1, 0)
			e := h.c.snapshots.entry(testKey("tape"))
			e.rec = h.c.snapshots.entries[early.Key].rec
			e.rec.Snapshot, e.rec.Spec.Driver = e.key, "tape.example.com"
			h.c.snapshots.entry(testKey("torn")).unreadable = "not JSON"
		})
		b.fault = onCall("DeleteSnapshot", func(string, proto.Message) fault { return fault{before: status.Error(codes.Internal, "busy")} })
		for _, name := range []string{"leaves", "changed"} {
			b.set(func() { b.looks = 0 })
			h.snap(testSnapshot(name, h.bound(testKey("a")).Handle))
		}
		h.c.RemoveSnapshot(testKey("leaves"))
		if err := h.c.DeleteSnapshot(t.Context(), testKey("leaves"), false); err != nil {
			t.Fatal(err)
		}
		changed := testSnapshot("changed", "static-1")
		changed.Claim = testKey("b")
		h.snap(changed)
		for _, c := range []struct {
			base, name string
			is         error
			want       string
		}{
			{"old", "absent", ErrNoSnapshot, "default/absent"},
			{"absent", "new", ErrNoSnapshot, "default/absent"},
			{"", "absent", ErrNoSnapshot, "default/absent"},
			{"", "torn", ErrUnreadable, "snapshot default/torn"},
			{"old", "making", ErrNoBlocks, "snapshot default/making: it is not ready"},
			{"making", "new", ErrNoBlocks, "snapshot default/making: it is not ready"},
			{"old", "other", ErrNoBlocks, "expected two of one volume"},
			{"tape", "new", ErrNoBlocks, "snapshot default/tape is of driver tape.example.com, and snapshot default/new of driver strict.example.com"},
			{"", "tape", ErrNoBlocks, "driver tape.example.com is not registered"},
			{"old", "leaves", ErrNoBlocks, "snapshot default/leaves: it is being deleted"},
			{"old", "changed", ErrNoBlocks, "snapshot default/changed: it does not match: it asks for a snapshot of claim default/b"},
			{"new", "new", ErrNoBlocks, "given twice"},
			{"new", "early", ErrNoBlocks, "snapshot default/new was made after snapshot default/early"},
		} {
			if _, _, err := h.collect(between(c.base, c.name)); !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s %s: %v, want %q", c.base, c.name, err, c.want)
			}
		}
		if n := len(slices.DeleteFunc(b.calls(), func(c string) bool { return !strings.HasPrefix(c, "GetMetadata") })); n != 0 {
			t.Errorf("the driver was asked %d times", n)
		}
		if h.snapshot("named").Ready {
			if _, _, err := h.collect(between("old", "named")); err != nil {
				t.Errorf("one that a person named by its handle: %v", err)
			}
		} else {
			t.Errorf("named: %+v", h.snapshot("named"))
		}
		h.c.DriverDown(b.name)
		began := time.Now()
		if _, _, err := h.collect(between("old", "new")); !errors.Is(err, ErrNoBlocks) || !strings.Contains(err.Error(), "is not registered") || time.Since(began) > 0 {
			t.Errorf("of a driver that is away, after %v: %v", time.Since(began), err)
		}
		b.fault = onCall("GetPluginCapabilities", func(string, proto.Message) fault { return fault{before: status.Error(codes.Internal, "not now")} })
		h.up()
		if _, _, err := h.collect(between("old", "new")); !errors.Is(err, ErrNoBlocks) || !strings.Contains(err.Error(), "did not answer with its capabilities") {
			t.Errorf("of a driver that does not tell what it can: %v", err)
		}
		h.c.post(func(context.Context) { // past the journal, which is not asked to keep them
			delete(h.c.snapshots.entries, testKey("tape"))
			delete(h.c.snapshots.entries, testKey("torn"))
		})
	})
	bubble(t, newBackend(), func(t *testing.T, h *fakeNode) {
		h.cutTwice()
		if _, _, err := h.collect(between("old", "new")); !errors.Is(err, ErrNoBlocks) || !strings.Contains(err.Error(), "SNAPSHOT_METADATA_SERVICE") {
			t.Errorf("of a driver without the service: %v", err)
		}
	})
}

// While a snapshot's blocks are being read, its deletion waits and says so; so does that of the older snapshot it is
// compared with, or of its group. If the stream breaks meanwhile, the controller does not continue it.
func TestASnapshotThatIsReadIsDeletedLater(t *testing.T) {
	for _, name := range []string{"old", "new"} {
		bubble(t, tells(), func(t *testing.T, h *fakeNode) {
			goesOn, streams := make(chan struct{}), 2
			h.backend.blocks = func(proto.Message) []any { return []any{message(Range{0, 8}), goesOn, message(Range{8, 8})} }
			h.cutTwice()
			ended := make(chan error)
			for range streams { // after the end of one stream the other is still read
				go func() {
					_, err := h.c.Blocks(t.Context(), between("old", "new"), func([]Range) error { return nil })
					ended <- err
				}()
			}
			synctest.Wait()
			h.c.RemoveSnapshot(testKey(name))
			if err := h.c.DeleteSnapshot(t.Context(), testKey(name), false); err != nil {
				t.Fatal(err)
			}
			for range streams {
				synctest.Wait()
				if s := h.snapshot(name); s.Phase != Deleting || s.Call != "" || !strings.Contains(s.Reason, "the blocks of snapshot default/"+name+" are being read") {
					t.Errorf("%s: %+v", name, s)
				}
				if slices.ContainsFunc(h.backend.calls(), func(c string) bool { return strings.HasPrefix(c, "DeleteSnapshot") }) {
					t.Errorf("%s was deleted while it was read", name)
				}
				goesOn <- struct{}{}
				if err := <-ended; err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			synctest.Wait()
			if _, known := h.c.Snapshot(testKey(name)); known {
				t.Errorf("%s is there after it was read: %+v", name, h.snapshot(name))
			}
			if n := len(h.c.snapshots.reading); n != 0 {
				t.Errorf("%d snapshots count as read after all", n)
			}
		})
	}
	bubble(t, tells(), func(t *testing.T, h *fakeNode) {
		breaks := make(chan struct{})
		h.backend.blocks = func(proto.Message) []any {
			return []any{message(Range{0, 8}), breaks, status.Error(codes.Unavailable, "the driver died")}
		}
		h.cutTwice()
		ended := make(chan error)
		go func() {
			_, _, err := h.collect(between("", "new"))
			ended <- err
		}()
		synctest.Wait()
		h.c.RemoveSnapshot(testKey("new"))
		if err := h.c.DeleteSnapshot(t.Context(), testKey("new"), false); err != nil {
			t.Fatal(err)
		}
		close(breaks)
		if err := <-ended; !errors.Is(err, ErrNoBlocks) || !strings.Contains(err.Error(), "snapshot default/new: it is being deleted") {
			t.Errorf("a stream that broke: %v", err)
		}
		synctest.Wait()
		if _, known := h.c.Snapshot(testKey("new")); known {
			t.Errorf("it is there after all: %+v", h.snapshot("new"))
		}
	})
}

// The deletion of a group waits while one of its snapshots is being read.
func TestAGroupWhoseSnapshotIsReadIsDeletedLater(t *testing.T) {
	for what, newBackend := range bothDrivers {
		b := newBackend()
		b.services = append(b.services, csi.PluginCapability_Service_SNAPSHOT_METADATA_SERVICE)
		bubble(t, b, func(t *testing.T, h *fakeNode) {
			goesOn := make(chan struct{})
			b.blocks = func(proto.Message) []any { return []any{message(Range{0, 8}), goesOn} }
			h.c.cfg.Freezer = &stills{}
			h.up()
			h.setGroup(h.pair())
			settleFor(time.Minute)
			ended := make(chan error)
			go func() {
				_, _, err := h.collect(between("", "g-b"))
				ended <- err
			}()
			synctest.Wait()
			h.c.RemoveGroup(testKey("g"))
			if err := h.c.DeleteGroup(t.Context(), testKey("g"), false); err != nil {
				t.Fatal(err)
			}
			settleFor(time.Minute / 2) // shorter than a driver may be silent
			if g := h.group("g"); g.Phase != Deleting || !strings.Contains(g.Reason, "the blocks of snapshot default/g-b are being read") || b.made() != 2 {
				t.Errorf("%s: %+v, and %d at the backend", what, g, b.made())
			}
			close(goesOn)
			if err := <-ended; err != nil {
				t.Errorf("%s: %v", what, err)
			}
			synctest.Wait()
			if b.made() != 0 {
				t.Errorf("%s: %d at the backend after all", what, b.made())
			}
		})
	}
}
