package csistrict

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Snapshot is the driver's state of a snapshot: a copy of a volume's data.
type Snapshot struct {
	ID string `json:"id"`
	// Source is the id of the volume from which it was taken.
	Source string `json:"source"`
	// Group is the id of its group, or "".
	Group     string    `json:"group,omitempty"`
	Block     bool      `json:"block,omitempty"`
	SizeBytes int64     `json:"sizeBytes"`
	Created   time.Time `json:"created"`
}

func (s *Snapshot) proto() *csi.Snapshot {
	return &csi.Snapshot{
		SnapshotId: s.ID, SourceVolumeId: s.Source, SizeBytes: s.SizeBytes,
		CreationTime: timestamppb.New(s.Created), ReadyToUse: true, GroupSnapshotId: s.Group,
	}
}

// snapshotDir returns the directory of a snapshot's copy of a volume's directory.
func (d *Driver) snapshotDir(id string) string {
	return filepath.Join(d.cfg.StateDir, "snapshots", pathName(id))
}

// volumeDir returns the directory of a volume's data and image.
func (d *Driver) volumeDir(id string) string { return filepath.Dir(d.dataDir(id)) }

// copyDir makes to a copy of from, with owners, modes and holes.
func copyDir(ctx context.Context, from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "cp", "-a", "--sparse=auto", from+"/.", to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s to %s: %w: %s", from, to, err, out)
	}
	return nil
}

// CreateSnapshot implements the Controller service.
func (s *controller) CreateSnapshot(ctx context.Context, req *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	if req.GetName() == "" || req.GetSourceVolumeId() == "" {
		return nil, status.Error(codes.InvalidArgument, "name and source_volume_id must be set")
	}
	d, id := s.driver, req.GetName()
	d.mu.Lock()
	defer d.mu.Unlock()
	if have, ok := d.judge.model.Snapshots[id]; ok {
		if have.Source != req.GetSourceVolumeId() {
			return nil, status.Errorf(codes.AlreadyExists, "snapshot %s is of volume %s", id, have.Source)
		}
		return &csi.CreateSnapshotResponse{Snapshot: have.proto()}, nil
	}
	v, ok := d.judge.model.Volumes[req.GetSourceVolumeId()]
	if !ok {
		return nil, status.Errorf(codes.NotFound, "volume %s: there is none", req.GetSourceVolumeId())
	}
	if err := copyDir(ctx, d.volumeDir(v.ID), d.snapshotDir(id)); err != nil {
		return nil, err
	}
	made := &Snapshot{ID: id, Source: v.ID, Block: v.Block, SizeBytes: v.SizeBytes, Created: time.Now()}
	d.judge.model.Snapshots[id] = made
	return &csi.CreateSnapshotResponse{Snapshot: made.proto()}, nil
}

// DeleteSnapshot implements the Controller service.
func (s *controller) DeleteSnapshot(_ context.Context, req *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	if req.GetSnapshotId() == "" {
		return nil, status.Error(codes.InvalidArgument, "snapshot_id: not set")
	}
	d := s.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.judge.model.Snapshots[req.GetSnapshotId()]; !ok {
		return &csi.DeleteSnapshotResponse{}, nil // deleted before
	}
	if err := os.RemoveAll(d.snapshotDir(req.GetSnapshotId())); err != nil {
		return nil, err
	}
	delete(d.judge.model.Snapshots, req.GetSnapshotId())
	return &csi.DeleteSnapshotResponse{}, nil
}

// ListSnapshots implements the Controller service.
func (s *controller) ListSnapshots(_ context.Context, req *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	s.driver.mu.Lock()
	defer s.driver.mu.Unlock()
	all := s.driver.judge.model.Snapshots
	ids := slices.Sorted(maps.Keys(all))
	ids = slices.DeleteFunc(ids, func(id string) bool {
		return id != cmp.Or(req.GetSnapshotId(), id) || all[id].Source != cmp.Or(req.GetSourceVolumeId(), all[id].Source)
	})
	ids, next, err := page(ids, req.GetStartingToken(), req.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	resp := &csi.ListSnapshotsResponse{NextToken: next}
	for _, id := range ids {
		resp.Entries = append(resp.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: all[id].proto()})
	}
	return resp, nil
}

// source is the volume or snapshot from which a new volume is copied.
type source struct {
	dir       string // "": no source
	block     bool
	sizeBytes int64
}

// sourceOf finds the snapshot or volume from which a new volume is copied.
// The caller holds mu.
func (d *Driver) sourceOf(c *csi.VolumeContentSource) (source, error) {
	switch id := c.GetSnapshot().GetSnapshotId(); {
	case c == nil:
		return source{}, nil
	case c.GetSnapshot() != nil:
		s, ok := d.judge.model.Snapshots[id]
		if !ok {
			return source{}, status.Errorf(codes.NotFound, "snapshot %s: there is none", id)
		}
		return source{dir: d.snapshotDir(id), block: s.Block, sizeBytes: s.SizeBytes}, nil
	default:
		v, ok := d.judge.model.Volumes[c.GetVolume().GetVolumeId()]
		if !ok {
			return source{}, status.Errorf(codes.NotFound, "volume %s: there is none", c.GetVolume().GetVolumeId())
		}
		return source{dir: d.volumeDir(v.ID), block: v.Block, sizeBytes: v.SizeBytes}, nil
	}
}
