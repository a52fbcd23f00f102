package localdriver

import (
	"context"
	"errors"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

type metadataServer struct {
	csi.UnimplementedSnapshotMetadataServer
	driver *Driver
}

// GetMetadataAllocated streams the ranges of a snapshot that hold data (CSI 1.13
// GetMetadataAllocated): where its image has no hole.
func (s *metadataServer) GetMetadataAllocated(req *csi.GetMetadataAllocatedRequest,
	stream csi.SnapshotMetadata_GetMetadataAllocatedServer,
) error {
	if req.GetSnapshotId() == "" {
		return invalid("snapshot_id is missing")
	}
	n, err := s.driver.readySnapshot(req.GetSnapshotId())
	if err != nil {
		return err
	}
	if n.Type != typeImage {
		return invalid("snapshot %s is of a volume of type %s, which has no blocks", n.ID, n.Type)
	}
	out, err := newPages(n.CapacityBytes, req)
	if err != nil {
		return err
	}
	out.send = func(page []*csi.BlockMetadata) error {
		return stream.Send(&csi.GetMetadataAllocatedResponse{
			BlockMetadataType: csi.BlockMetadataType_VARIABLE_LENGTH, VolumeCapacityBytes: n.CapacityBytes, BlockMetadata: page,
		})
	}
	image, err := s.driver.openSnapshot(n)
	if err != nil {
		return err
	}
	defer image.Close()
	if err := allocated(stream.Context(), image, out); err != nil {
		return err
	}
	return out.end()
}

// GetMetadataDelta streams the ranges in which two snapshots of a volume differ (CSI 1.13
// GetMetadataDelta). It compares what they hold.
func (s *metadataServer) GetMetadataDelta(req *csi.GetMetadataDeltaRequest,
	stream csi.SnapshotMetadata_GetMetadataDeltaServer,
) error {
	if req.GetBaseSnapshotId() == "" || req.GetTargetSnapshotId() == "" {
		return invalid("base_snapshot_id or target_snapshot_id is missing")
	}
	base, err := s.driver.readySnapshot(req.GetBaseSnapshotId())
	if err != nil {
		return err
	}
	target, err := s.driver.readySnapshot(req.GetTargetSnapshotId())
	if err != nil {
		return err
	}
	if err := checkDelta(base, target); err != nil {
		return err
	}
	out, err := newPages(target.CapacityBytes, req)
	if err != nil {
		return err
	}
	out.send = func(page []*csi.BlockMetadata) error {
		return stream.Send(&csi.GetMetadataDeltaResponse{
			BlockMetadataType:   csi.BlockMetadataType_VARIABLE_LENGTH,
			VolumeCapacityBytes: target.CapacityBytes, BlockMetadata: page,
		})
	}
	before, err := s.driver.openSnapshot(base)
	if err != nil {
		return err
	}
	defer before.Close()
	after, err := s.driver.openSnapshot(target)
	if err != nil {
		return err
	}
	defer after.Close()
	if err := changed(stream.Context(), before, after, out); err != nil {
		return err
	}
	return out.end()
}

// checkDelta returns why no delta can be told of two snapshots. Where there are no blocks it is
// FAILED_PRECONDITION, after which the caller makes a full backup (CSI 1.13 GetMetadataDelta Errors).
func checkDelta(base, target snapshot) error {
	switch {
	case base.SourceVolume != target.SourceVolume:
		return invalid("snapshot %s is of volume %s, and snapshot %s of volume %s: expected two of one volume",
			base.ID, base.SourceVolume, target.ID, target.SourceVolume)
	case !base.Created.Before(target.Created):
		return invalid("base_snapshot_id %s was not made before target_snapshot_id %s", base.ID, target.ID)
	case target.Type != typeImage:
		return precondition("snapshot %s is of a volume of type %s, which has no blocks", target.ID, target.Type)
	}
	return nil
}

// readySnapshot is the record of a snapshot whose bytes are all there.
func (d *Driver) readySnapshot(id string) (snapshot, error) {
	n, ok, err := d.store.snapshot(id)
	if err == nil && (!ok || n.Phase != phaseReady) {
		err = noSnapshot(id)
	}
	return n, err
}

// openSnapshot opens the image of a snapshot. No call changes it, and one that removes it leaves
// an open file as it is, so the readers of a snapshot hold no lock.
func (d *Driver) openSnapshot(n snapshot) (*os.File, error) {
	f, err := os.Open(d.store.dataPath(n.ID, n.Type))
	if errors.Is(err, errNotExist) {
		if _, err := d.readySnapshot(n.ID); err != nil {
			return nil, err // it was deleted meanwhile
		}
	}
	if err != nil {
		return nil, noData(n.ID, err)
	}
	return f, nil
}

// The bounds of an answer.
const (
	// maxRanges is how many ranges a message has.
	maxRanges = 1024
	// quietBytes is how much is looked at until a message goes out that may have no range: the
	// caller learns that the driver lives.
	quietBytes = 1 << 30
)

// pages collects ranges in ascending order, merges those that touch, and sends them.
type pages struct {
	capacity int64
	// from is where to begin: the starting_offset, cut to a whole block.
	from int64
	most int
	send func([]*csi.BlockMetadata) error

	page []*csi.BlockMetadata
	// last is the range that may yet grow; last[1] is 0 for none.
	last [2]int64
	// sent is the end of the last range that was sent; -1 before the first message.
	sent int64
}

// newPages reads what a request of the service says about its answer: OUT_OF_RANGE for an offset
// beyond the volume (CSI 1.13 GetMetadataAllocated Errors).
func newPages(capacity int64, req interface {
	GetStartingOffset() int64
	GetMaxResults() int32
},
) (*pages, error) {
	from, most := req.GetStartingOffset(), int(req.GetMaxResults())
	switch {
	case from < 0 || from > capacity:
		return nil, refuse(codes.OutOfRange, "starting_offset %d: expected 0 to %d, the size of the volume", from, capacity)
	case most < 0:
		return nil, invalid("max_results %d is negative", most)
	case most == 0 || most > maxRanges:
		most = maxRanges
	}
	return &pages{capacity: capacity, from: from / sizeUnit * sizeUnit, most: most, sent: -1}, nil
}

// add takes the bytes from r[0] to r[1] into the answer.
func (p *pages) add(r [2]int64) error {
	if p.last[1] != 0 && r[0] <= p.last[1] {
		p.last[1] = max(p.last[1], r[1])
		return nil
	}
	full := p.keep()
	p.last = r
	if full {
		return p.flush(r[0])
	}
	return nil
}

// keep puts the range that can no longer grow on the page, and reports whether that is full.
func (p *pages) keep() bool {
	if p.last[1] != 0 {
		p.page = append(p.page, &csi.BlockMetadata{ByteOffset: p.last[0], SizeBytes: p.last[1] - p.last[0]})
		p.last = [2]int64{}
	}
	return len(p.page) >= p.most
}

// advance notes that the walk has come to offset.
func (p *pages) advance(ctx context.Context, offset int64) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if offset-max(p.sent, p.from) < quietBytes {
		return nil
	}
	return p.flush(offset)
}

func (p *pages) flush(offset int64) error {
	p.sent = offset
	page := p.page
	p.page = nil
	return p.send(page)
}

// end sends the rest. An answer without a range has a message too, which tells the capacity.
func (p *pages) end() error {
	p.keep()
	if len(p.page) == 0 && p.sent >= 0 {
		return nil
	}
	return p.flush(p.capacity)
}
