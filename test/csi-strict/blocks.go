package csistrict

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// blockSize is the length of each range that the driver reports: FIXED_LENGTH, in bytes.
const blockSize = 4096

// metadataService is the plugin's ability to report blocks.
const metadataService = "SNAPSHOT_METADATA_SERVICE"

type metadata struct {
	csi.UnimplementedSnapshotMetadataServer
	driver *Driver
}

// blocksRequest is a request of the SnapshotMetadata service.
type blocksRequest interface {
	proto.Message
	GetStartingOffset() int64
	GetMaxResults() int32
}

// blocksStream is the answer to a request.
type blocksStream interface {
	grpc.ServerStream
	sendBlocks(capacity int64, blocks []*csi.BlockMetadata) error
}

type allocatedStream struct {
	csi.SnapshotMetadata_GetMetadataAllocatedServer
}

func (s allocatedStream) sendBlocks(capacity int64, blocks []*csi.BlockMetadata) error {
	return s.Send(&csi.GetMetadataAllocatedResponse{
		BlockMetadataType: csi.BlockMetadataType_FIXED_LENGTH, VolumeCapacityBytes: capacity, BlockMetadata: blocks,
	})
}

type deltaStream struct {
	csi.SnapshotMetadata_GetMetadataDeltaServer
}

func (s deltaStream) sendBlocks(capacity int64, blocks []*csi.BlockMetadata) error {
	return s.Send(&csi.GetMetadataDeltaResponse{
		BlockMetadataType: csi.BlockMetadataType_FIXED_LENGTH, VolumeCapacityBytes: capacity, BlockMetadata: blocks,
	})
}

// GetMetadataAllocated implements the SnapshotMetadata service.
func (s *metadata) GetMetadataAllocated(req *csi.GetMetadataAllocatedRequest, stream csi.SnapshotMetadata_GetMetadataAllocatedServer) error {
	return s.driver.tellBlocks("GetMetadataAllocated", req, allocatedStream{stream}, "", req.GetSnapshotId())
}

// GetMetadataDelta implements the SnapshotMetadata service.
func (s *metadata) GetMetadataDelta(req *csi.GetMetadataDeltaRequest, stream csi.SnapshotMetadata_GetMetadataDeltaServer) error {
	return s.driver.tellBlocks("GetMetadataDelta", req, deltaStream{stream}, req.GetBaseSnapshotId(), req.GetTargetSnapshotId())
}

// tellBlocks judges a request, misbehaves if the script says so, and answers it. A fault comes after
// the blocks: the stream breaks.
func (d *Driver) tellBlocks(name string, req blocksRequest, stream blocksStream, base, target string) error {
	c := &call{ctx: stream.Context(), name: name, req: req, at: time.Now(), request: canonical(req)}
	fault, _, err := d.begin(c)
	if err != nil {
		return err
	}
	if f, refused := c.refusal(); refused {
		return d.end(c, status.Errorf(f.code, "%s: %s", f.rule, f.text), false, false)
	}
	_, err = d.misbehave(c, fault, func(context.Context, any) (any, error) {
		return nil, d.sendBlocks(req, stream, base, target)
	})
	return d.end(c, err, false, fault.ID != "")
}

// sendBlocks compares the images of two snapshots, or one with nothing, block by block.
func (d *Driver) sendBlocks(req blocksRequest, stream blocksStream, base, target string) error {
	d.mu.Lock()
	later, earlier := d.judge.model.Snapshots[target], d.judge.model.Snapshots[base]
	d.mu.Unlock()
	switch {
	case later == nil || base != "" && earlier == nil:
		return status.Errorf(codes.NotFound, "snapshots %q and %q: not both are there", base, target)
	case !later.Block || later.SizeBytes%blockSize != 0:
		return status.Errorf(codes.FailedPrecondition, "snapshot %s is not of a device of whole blocks: which changed is not known", target)
	}
	after, err := os.Open(d.snapshotImage(target))
	if err != nil {
		return err
	}
	defer after.Close()
	var before *os.File
	if base != "" {
		if before, err = os.Open(d.snapshotImage(base)); err != nil {
			return err
		}
		defer before.Close()
	}
	var page []*csi.BlockMetadata
	most := int(cmp.Or(req.GetMaxResults(), 16))
	a, b := make([]byte, blockSize), make([]byte, blockSize)
	if err := stream.sendBlocks(later.SizeBytes, nil); err != nil {
		return err
	}
	for at := req.GetStartingOffset() / blockSize * blockSize; at+blockSize <= later.SizeBytes; at += blockSize {
		if err := errors.Join(readBlock(before, a, at), readBlock(after, b, at)); err != nil {
			return err
		}
		if bytes.Equal(a, b) {
			continue
		}
		page = append(page, &csi.BlockMetadata{ByteOffset: at, SizeBytes: blockSize})
		if len(page) == most {
			if err := stream.sendBlocks(later.SizeBytes, page); err != nil {
				return err
			}
			page = nil
		}
	}
	return stream.sendBlocks(later.SizeBytes, page)
}

// snapshotImage is the copy of a block volume's image.
func (d *Driver) snapshotImage(id string) string {
	return filepath.Join(d.snapshotDir(id), filepath.Base(d.image("x")))
}

// readBlock reads a block of an image, or zeros if there is no image.
func readBlock(f *os.File, into []byte, at int64) error {
	clear(into)
	if f == nil {
		return nil
	}
	if _, err := f.ReadAt(into, at); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// allocated: GetMetadataAllocated.
func (j *judge) allocated(c *call, _ *Volume) {
	req := c.req.(*csi.GetMetadataAllocatedRequest)
	j.blocksOf(c, "snapshot_id", req.GetSnapshotId())
	j.offset(c, req, req.GetSnapshotId())
}

// delta: GetMetadataDelta of an older and a later snapshot of one volume.
func (j *judge) delta(c *call, _ *Volume) {
	req := c.req.(*csi.GetMetadataDeltaRequest)
	base := j.blocksOf(c, "base_snapshot_id", req.GetBaseSnapshotId())
	target := j.blocksOf(c, "target_snapshot_id", req.GetTargetSnapshotId())
	j.offset(c, req, req.GetTargetSnapshotId())
	switch {
	case base == nil || target == nil:
	case base.Source != target.Source:
		c.breach(codes.InvalidArgument, "N-24", "GetMetadataDelta of snapshots of volumes %s and %s", base.Source, target.Source)
	case base == target || base.Created.After(target.Created):
		c.breach(codes.InvalidArgument, "N-24", "GetMetadataDelta with a target_snapshot_id that was not made after base_snapshot_id")
	}
}

// blocksOf finds the snapshot that a field of a request names.
func (j *judge) blocksOf(c *call, field, id string) *Snapshot {
	if !j.told.can(metadataService) {
		c.breach(codes.Unimplemented, "N-13", "%s, and the driver has no %s", c.name, metadataService)
	}
	c.required(field, id)
	return j.model.Snapshots[id]
}

// offset checks the starting offset of a request.
func (j *judge) offset(c *call, req blocksRequest, id string) {
	if s := j.model.Snapshots[id]; s != nil && (req.GetStartingOffset() < 0 || req.GetStartingOffset() > s.SizeBytes) {
		c.breach(codes.OutOfRange, "N-24", "starting_offset %d, and the volume has %d bytes", req.GetStartingOffset(), s.SizeBytes)
	}
	if req.GetMaxResults() < 0 {
		c.breach(codes.InvalidArgument, "N-24", "max_results is %d", req.GetMaxResults())
	}
}
