package localdriver

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

type metadataServer struct {
	csi.UnimplementedSnapshotMetadataServer
	driver *Driver
}

// GetMetadataAllocated streams the ranges of a snapshot that hold data: the parts of its image
// without holes (CSI 1.13 GetMetadataAllocated).
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
	if err := addAllocated(stream.Context(), image, out); err != nil {
		return err
	}
	return out.finish()
}

// GetMetadataDelta streams the ranges that differ between two snapshots of a volume, by comparing
// their data (CSI 1.13 GetMetadataDelta).
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
	if err := addChanged(stream.Context(), before, after, out); err != nil {
		return err
	}
	return out.finish()
}

// checkDelta says why two snapshots cannot be compared. It returns FAILED_PRECONDITION if there are
// no blocks, after which the caller makes a full backup (CSI 1.13 GetMetadataDelta Errors).
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

// readySnapshot returns the record of a snapshot whose data is complete.
func (d *Driver) readySnapshot(id string) (snapshot, error) {
	n, ok, err := d.store.snapshot(id)
	if err == nil && (!ok || n.Phase != phaseReady) {
		err = noSnapshot(id)
	}
	return n, err
}

// openSnapshot opens the image of a snapshot. Readers need no lock, because no call changes the
// image, and an open file outlives its removal.
func (d *Driver) openSnapshot(n snapshot) (*os.File, error) {
	f, err := os.Open(d.store.dataPath(n.ID, n.Type))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := d.readySnapshot(n.ID); err != nil {
			return nil, err // it was deleted meanwhile
		}
	}
	if err != nil {
		return nil, noData(n.ID, err)
	}
	return f, nil
}

// The limits of an answer.
const (
	// maxRanges limits the ranges in a message.
	maxRanges = 1024
	// keepaliveBytes is how much is examined before a message is sent even without ranges, so that
	// the caller knows that the driver is alive.
	keepaliveBytes = 1 << 30
)

// pages collects ranges in ascending order, merges adjacent ones and sends them.
type pages struct {
	capacity int64
	// from is where to begin: the starting_offset, rounded down to a whole block.
	from int64
	most int
	send func([]*csi.BlockMetadata) error

	page []*csi.BlockMetadata
	// last is the range that may still grow; last[1] is 0 if there is none.
	last [2]int64
	// sent is the end of the last range sent; -1 before the first message.
	sent int64
}

// newPages checks what a request says about its answer. It returns OUT_OF_RANGE for an offset
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

// add adds the bytes from r[0] to r[1] to the answer.
func (p *pages) add(r [2]int64) error {
	if p.last[1] != 0 && r[0] <= p.last[1] {
		p.last[1] = max(p.last[1], r[1])
		return nil
	}
	full := p.closeRange()
	p.last = r
	if full {
		return p.flush(r[0])
	}
	return nil
}

// closeRange adds the last range to the page, and reports whether the page is full.
func (p *pages) closeRange() bool {
	if p.last[1] != 0 {
		p.page = append(p.page, &csi.BlockMetadata{ByteOffset: p.last[0], SizeBytes: p.last[1] - p.last[0]})
		p.last = [2]int64{}
	}
	return len(p.page) >= p.most
}

// advance records that everything before offset has been examined.
func (p *pages) advance(ctx context.Context, offset int64) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if offset-max(p.sent, p.from) < keepaliveBytes {
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

// finish sends the rest. An answer without ranges also has a message, with the capacity.
func (p *pages) finish() error {
	p.closeRange()
	if len(p.page) == 0 && p.sent >= 0 {
		return nil
	}
	return p.flush(p.capacity)
}
