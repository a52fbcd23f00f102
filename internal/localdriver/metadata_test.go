package localdriver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// told is an answer of the service.
type told struct {
	ranges   [][2]int64 // from, to
	pages    [][]*csi.BlockMetadata
	capacity int64
}

// wantOrder checks what CSI 1.13 ("Metadata Format") requires of ranges.
func (got told) wantOrder(t *testing.T, what string, from, capacity int64, most int) {
	t.Helper()
	last := int64(0)
	for i, r := range got.ranges {
		if r[0] < last || r[1] <= r[0] || r[1] > capacity || r[0]%sizeUnit != 0 || r[1]%sizeUnit != 0 || r[1] <= from || i > 0 && r[0] == last {
			t.Errorf("%s: range %d is %v after %d, from %d, of %d bytes", what, i, r, last, from, capacity)
		}
		last = r[1]
	}
	if len(got.pages) == 0 {
		t.Errorf("%s: no message", what)
	}
	for _, p := range got.pages {
		if len(p) > most {
			t.Errorf("%s: a message has %d ranges, of at most %d", what, len(p), most)
		}
	}
}

func (got *told) take(page []*csi.BlockMetadata) {
	got.pages = append(got.pages, page)
	for _, b := range page {
		got.ranges = append(got.ranges, [2]int64{b.GetByteOffset(), b.GetByteOffset() + b.GetSizeBytes()})
	}
}

// scanned returns what a scan reports from an offset on.
func scanned(t *testing.T, capacity, from int64, most int32, scan func(*pages) error) told {
	t.Helper()
	p, err := newPages(capacity, &csi.GetMetadataDeltaRequest{StartingOffset: from, MaxResults: most})
	if err != nil {
		t.Fatal(err)
	}
	got := told{}
	p.send = func(page []*csi.BlockMetadata) error { got.take(page); return nil }
	if err := errors.Join(scan(p), p.finish()); err != nil {
		t.Fatal(err)
	}
	return got
}

// differing returns the blocks in which a and b differ from an offset on, by comparing all bytes.
func differing(a, b []byte, from int64) (out [][2]int64) {
	for at := from / sizeUnit * sizeUnit; at < int64(len(a)); at += sizeUnit {
		switch last := len(out) - 1; {
		case bytes.Equal(a[at:at+sizeUnit], b[at:at+sizeUnit]):
		case last >= 0 && out[last][1] == at:
			out[last][1] += sizeUnit
		default:
			out = append(out, [2]int64{at, at + sizeUnit})
		}
	}
	return out
}

// whole reads an image, with zeros up to a size.
func whole(t *testing.T, f *os.File, size int64) []byte {
	t.Helper()
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); err != nil && !(errors.Is(err, io.EOF) && n < len(b)) {
		t.Fatal(err)
	}
	return b
}

// scribble writes at random places of a file, and punches holes.
func scribble(t *testing.T, r *rand.Rand, f *os.File, size int64) {
	t.Helper()
	for range r.IntN(12) {
		at := r.Int64N(size)
		n := min(1+r.Int64N(3*compareBytes>>r.IntN(12)), size-at)
		switch r.IntN(4) {
		case 0:
			if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, n); err != nil {
				t.Fatal(err)
			}
		case 1: // zeros that take space
			if _, err := f.WriteAt(make([]byte, n), at); err != nil {
				t.Fatal(err)
			}
		default:
			if _, err := f.WriteAt(bytes.Repeat([]byte{byte(1 + r.IntN(3))}, int(n)), at); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A scan of a random image finds what reading every byte finds: a delta is exact, and an
// allocation covers all bytes that are not zero.
func TestBlocksOfRandomImages(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range 150 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			dir := t.TempDir()
			capacity := sizeUnit * (1 + r.Int64N(2000))
			before, err := os.Create(dir + "/before")
			if err != nil {
				t.Fatal(err)
			}
			defer before.Close()
			after, err := os.Create(dir + "/after")
			if err != nil {
				t.Fatal(err)
			}
			defer after.Close()
			smaller := 1 + r.Int64N(capacity) // the volume grew between the two; a file system may have smaller blocks
			if err := errors.Join(before.Truncate(smaller), after.Truncate(capacity)); err != nil {
				t.Fatal(err)
			}
			scribble(t, r, before, smaller)
			if r.IntN(4) > 0 { // otherwise the two are unrelated
				if err := copySparse(t.Context(), before, after); err != nil {
					t.Fatal(err)
				}
				if err := after.Truncate(capacity); err != nil {
					t.Fatal(err)
				}
			}
			scribble(t, r, after, capacity)
			from, most := int64(0), int32(r.IntN(4))
			if r.IntN(2) == 0 {
				from = r.Int64N(capacity + 1)
			}
			limit := int(most)
			if most == 0 {
				limit = maxRanges
			}
			a, b := whole(t, before, capacity), whole(t, after, capacity)
			delta := scanned(t, capacity, from, most, func(p *pages) error { return addChanged(t.Context(), before, after, p) })
			delta.wantOrder(t, "delta", from, capacity, limit)
			if want := differing(a, b, from); !slices.Equal(delta.ranges, want) {
				t.Errorf("delta from %d of %d: got %v, want %v", from, capacity, delta.ranges, want)
			}
			holds := scanned(t, capacity, from, most, func(p *pages) error { return addAllocated(t.Context(), after, p) })
			holds.wantOrder(t, "allocated", from, capacity, limit)
			for _, used := range holds.ranges {
				clear(b[used[0]:used[1]])
			}
			if left := differing(b, make([]byte, capacity), from); len(left) > 0 {
				t.Errorf("allocated from %d of %d: got %v, without %v", from, capacity, holds.ranges, left)
			}
		})
	}
}

// A scan ends between two reads when its caller has gone, and sends a message now and then even
// if it finds nothing.
func TestALongScanEndsAndIsNoticed(t *testing.T) {
	f, err := os.Create(t.TempDir() + "/image")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(make([]byte, 2*compareBytes), 0); err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the caller has gone"))
	for what, scan := range map[string]func(*pages) error{
		"delta":     func(p *pages) error { return addChanged(gone, f, f, p) },
		"allocated": func(p *pages) error { return addAllocated(gone, f, p) },
	} {
		p := &pages{capacity: 2 * compareBytes, most: maxRanges, sent: -1, send: func([]*csi.BlockMetadata) error { return nil }}
		if err := scan(p); err == nil || err.Error() != "the caller has gone" {
			t.Errorf("%s: %v", what, err)
		}
	}
	sent := 0
	p := &pages{capacity: 4 * keepaliveBytes, from: sizeUnit, most: maxRanges, sent: -1, send: func([]*csi.BlockMetadata) error { sent++; return nil }}
	for _, offset := range []int64{keepaliveBytes, keepaliveBytes + sizeUnit, 2 * keepaliveBytes, 2*keepaliveBytes + 2*sizeUnit} {
		if err := p.advance(t.Context(), offset); err != nil {
			t.Fatal(err)
		}
	}
	if sent != 2 {
		t.Errorf("%d messages, want 2", sent)
	}
}

// heard reads a stream to its end.
func heard[T interface {
	GetVolumeCapacityBytes() int64
	GetBlockMetadataType() csi.BlockMetadataType
	GetBlockMetadata() []*csi.BlockMetadata
}](t *testing.T, recv func() (T, error),
) (got told, err error) {
	t.Helper()
	for {
		m, err := recv()
		if errors.Is(err, io.EOF) {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		if m.GetBlockMetadataType() != csi.BlockMetadataType_VARIABLE_LENGTH || got.capacity != 0 && got.capacity != m.GetVolumeCapacityBytes() {
			t.Errorf("message %v", m)
		}
		got.capacity = m.GetVolumeCapacityBytes()
		got.take(m.GetBlockMetadata())
	}
}

func (r *rig) delta(req *csi.GetMetadataDeltaRequest) (told, error) {
	r.t.Helper()
	stream, err := r.metadata.GetMetadataDelta(r.ctx, req, grpc.WaitForReady(true))
	if err != nil {
		return told{}, err
	}
	return heard(r.t, stream.Recv)
}

func (r *rig) allocated(req *csi.GetMetadataAllocatedRequest) (told, error) {
	r.t.Helper()
	stream, err := r.metadata.GetMetadataAllocated(r.ctx, req)
	if err != nil {
		return told{}, err
	}
	return heard(r.t, stream.Recv)
}

// image writes into a volume's image while nothing uses it.
func (v vol) image(text string, offsets ...int64) {
	v.r.t.Helper()
	f, err := os.OpenFile(v.r.d.store.dataPath(v.id, typeImage), os.O_WRONLY, 0)
	if err != nil {
		v.r.t.Fatal(err)
	}
	defer f.Close()
	for _, at := range offsets {
		if _, err := f.WriteAt([]byte(text), at); err != nil {
			v.r.t.Fatal(err)
		}
	}
}

// The service reports the blocks written before and between snapshots, also after a restart, from an
// offset on, and for a volume that grew or is gone.
func TestBlocksOfSnapshots(t *testing.T) {
	rigs(t, func(t *testing.T, r *rig) {
		v := r.create(createReq("v", 32*mib, blockCap(multi)))
		v.image("a", 0, 8*mib)
		first := r.snap("first", v.id)
		v.image("b", 8*mib, 16*mib, 16*mib+sizeUnit)
		v.expand(64 * mib)
		v.image("b", 48*mib)
		second := r.snap("second", v.id)
		v.image("c", 0)
		v.remove()
		r.restart()

		at := func(from, blocks int64) [2]int64 { return [2]int64{from, from + blocks*sizeUnit} }
		for _, c := range []struct {
			from int64
			most int32
			want [][2]int64
		}{
			{0, 0, [][2]int64{at(8*mib, 1), at(16*mib, 2), at(48*mib, 1)}},
			{0, 1, [][2]int64{at(8*mib, 1), at(16*mib, 2), at(48*mib, 1)}},
			{8*mib + 1, 2, [][2]int64{at(8*mib, 1), at(16*mib, 2), at(48*mib, 1)}},
			{8*mib + sizeUnit, 0, [][2]int64{at(16*mib, 2), at(48*mib, 1)}},
			{48*mib + sizeUnit, 0, nil},
			{64 * mib, 0, nil},
		} {
			got, err := r.delta(&csi.GetMetadataDeltaRequest{BaseSnapshotId: first, TargetSnapshotId: second, StartingOffset: c.from, MaxResults: c.most})
			if err != nil || !slices.Equal(got.ranges, c.want) || got.capacity != 64*mib {
				t.Errorf("delta from %d: %+v, %v, want %v", c.from, got, err, c.want)
			}
			most := maxRanges
			if c.most > 0 {
				most = int(c.most)
			}
			got.wantOrder(t, "delta", c.from, 64*mib, most)
		}
		got, err := r.allocated(&csi.GetMetadataAllocatedRequest{SnapshotId: first})
		if want := [][2]int64{at(0, 1), at(8*mib, 1)}; err != nil || !slices.Equal(got.ranges, want) || got.capacity != 32*mib {
			t.Errorf("allocated: %+v, %v, want %v", got, err, want)
		}
	})
}

func TestBlocksAreRefused(t *testing.T) {
	r := newRig(t)
	v, w := r.create(createReq("v", 32*mib, blockCap(multi))), r.create(createReq("w", 32*mib, blockCap(multi)))
	d := r.create(directoryReq("d"))
	first, second, other := r.snap("first", v.id), r.snap("second", v.id), r.snap("other", w.id)
	files, more := r.snap("files", d.id), r.snap("more", d.id)
	made, _, err := r.d.store.snapshot(second)
	if err != nil {
		t.Fatal(err)
	}
	half := made
	half.ID, half.Phase = newID("snap", "half"), phaseCreating
	if err := r.d.store.putSnapshot(half); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		req  *csi.GetMetadataDeltaRequest
		want codes.Code
	}{
		"no base":       {&csi.GetMetadataDeltaRequest{TargetSnapshotId: second}, codes.InvalidArgument},
		"no target":     {&csi.GetMetadataDeltaRequest{BaseSnapshotId: first}, codes.InvalidArgument},
		"unknown base":  {&csi.GetMetadataDeltaRequest{BaseSnapshotId: "snap-1", TargetSnapshotId: second}, codes.NotFound},
		"unknown":       {&csi.GetMetadataDeltaRequest{BaseSnapshotId: first, TargetSnapshotId: "snap-1"}, codes.NotFound},
		"not all there": {&csi.GetMetadataDeltaRequest{BaseSnapshotId: first, TargetSnapshotId: half.ID}, codes.NotFound},
		"two volumes":   {&csi.GetMetadataDeltaRequest{BaseSnapshotId: first, TargetSnapshotId: other}, codes.InvalidArgument},
		"backwards":     {&csi.GetMetadataDeltaRequest{BaseSnapshotId: second, TargetSnapshotId: first}, codes.InvalidArgument},
		"one":           {&csi.GetMetadataDeltaRequest{BaseSnapshotId: first, TargetSnapshotId: first}, codes.InvalidArgument},
		"directories":   {&csi.GetMetadataDeltaRequest{BaseSnapshotId: files, TargetSnapshotId: more}, codes.FailedPrecondition},
		"beyond":        {&csi.GetMetadataDeltaRequest{BaseSnapshotId: first, TargetSnapshotId: second, StartingOffset: 32*mib + 1}, codes.OutOfRange},
		"before":        {&csi.GetMetadataDeltaRequest{BaseSnapshotId: first, TargetSnapshotId: second, StartingOffset: -1}, codes.OutOfRange},
		"negative":      {&csi.GetMetadataDeltaRequest{BaseSnapshotId: first, TargetSnapshotId: second, MaxResults: -1}, codes.InvalidArgument},
	} {
		_, err := r.delta(c.req)
		wantCode(t, "delta: "+what, err, c.want)
	}
	for what, c := range map[string]struct {
		req  *csi.GetMetadataAllocatedRequest
		want codes.Code
	}{
		"none":        {&csi.GetMetadataAllocatedRequest{}, codes.InvalidArgument},
		"unknown":     {&csi.GetMetadataAllocatedRequest{SnapshotId: "snap-1"}, codes.NotFound},
		"a directory": {&csi.GetMetadataAllocatedRequest{SnapshotId: files}, codes.InvalidArgument},
		"beyond":      {&csi.GetMetadataAllocatedRequest{SnapshotId: first, StartingOffset: 32*mib + 1}, codes.OutOfRange},
		"negative":    {&csi.GetMetadataAllocatedRequest{SnapshotId: first, MaxResults: -1}, codes.InvalidArgument},
	} {
		_, err := r.allocated(c.req)
		wantCode(t, "allocated: "+what, err, c.want)
	}
	if err := r.d.store.dropSnapshot(half.ID); err != nil {
		t.Fatal(err)
	}
}
