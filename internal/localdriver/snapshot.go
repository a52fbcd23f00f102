package localdriver

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// CreateSnapshot copies the current state of a volume (CSI 1.13 CreateSnapshot). When it returns,
// the snapshot is ready to use and independent of the volume.
func (s *controllerServer) CreateSnapshot(ctx context.Context,
	req *csi.CreateSnapshotRequest,
) (*csi.CreateSnapshotResponse, error) {
	if req.GetName() == "" || req.GetSourceVolumeId() == "" {
		return nil, invalid("name or source_volume_id is missing")
	}
	if err := checkSnapshot(req); err != nil {
		return nil, err
	}
	d := s.driver
	release, err := d.locks.tryLock(lockSnapshotName(req.GetName()), lockVolume(req.GetSourceVolumeId()))
	if err != nil {
		return nil, err
	}
	defer release()
	n, found, err := d.store.snapshotNamed(req.GetName())
	switch {
	case err != nil:
		return nil, err
	case found && n.SourceVolume != req.GetSourceVolumeId():
		return nil, refuse(codes.AlreadyExists, "snapshot %s of that name is of volume %s", n.ID, n.SourceVolume)
	case found && n.Phase == phaseDeleting:
		return nil, refuse(codes.Aborted, "snapshot %s of that name is being deleted", n.ID)
	case found && n.Phase == phaseReady:
		return &csi.CreateSnapshotResponse{Snapshot: describeSnapshot(n)}, nil
	case !found:
		n = snapshot{ID: newID("snap", req.GetName()), Name: req.GetName(), SourceVolume: req.GetSourceVolumeId()}
	}
	if n, err = d.takeSnapshot(ctx, n); err != nil {
		return nil, err
	}
	return &csi.CreateSnapshotResponse{Snapshot: describeSnapshot(n)}, nil
}

// checkSnapshot checks what requests for snapshots and groups have in common.
func checkSnapshot(req interface {
	GetName() string
	GetParameters() map[string]string
},
) error {
	if len(req.GetName()) > maxName {
		return invalid("the name has %d bytes, more than %d", len(req.GetName()), maxName)
	}
	for _, key := range slices.Sorted(maps.Keys(req.GetParameters())) {
		if !strings.HasPrefix(key, paramPrefix) {
			return invalid("unknown snapshot parameter %q", key)
		}
	}
	return nil
}

// takeSnapshot records n, copies its volume and records that n is ready. If the copy fails, nothing
// of n is left.
func (d *Driver) takeSnapshot(ctx context.Context, n snapshot) (snapshot, error) {
	release, err := d.locks.tryLock(lockSnapshot(n.ID))
	if err != nil {
		return n, err
	}
	defer release()
	v, err := d.original(source{Volume: n.SourceVolume})
	if err != nil && n.Phase == phaseCreating { // left by a crash; the orchestrator does not know the id
		err = errors.Join(err, d.deleteSnapshot(context.WithoutCancel(ctx), n))
	}
	if err != nil {
		return n, err
	}
	n.Phase, n.Created, n.copied = phaseCreating, time.Now(), v.copyInfo()
	if err := d.store.putSnapshot(n); err != nil {
		return n, err
	}
	if err := d.copyData(ctx, v, n.ID); err != nil {
		return n, errors.Join(err, d.store.dropSnapshot(n.ID))
	}
	n.Phase = phaseReady
	return n, d.store.putSnapshot(n)
}

// DeleteSnapshot deletes a snapshot (CSI 1.13 DeleteSnapshot). A snapshot that does not exist is
// OK; a member of a group can only be deleted with its group. Volumes made from it remain.
func (s *controllerServer) DeleteSnapshot(ctx context.Context,
	req *csi.DeleteSnapshotRequest,
) (*csi.DeleteSnapshotResponse, error) {
	id := req.GetSnapshotId()
	if id == "" {
		return nil, invalid("snapshot_id is missing")
	}
	d := s.driver
	release, err := d.locks.tryLock(lockSnapshot(id))
	if err != nil {
		return nil, err
	}
	defer release()
	n, ok, err := d.store.snapshot(id)
	if err != nil {
		return nil, err
	}
	if !ok {
		return &csi.DeleteSnapshotResponse{}, nil
	}
	if n.Group != "" {
		return nil, invalid("snapshot %s belongs to group snapshot %s: delete that with DeleteVolumeGroupSnapshot",
			n.ID, n.Group)
	}
	if err := d.deleteSnapshot(ctx, n); err != nil {
		return nil, err
	}
	return &csi.DeleteSnapshotResponse{}, nil
}

// deleteSnapshot deletes n, which the caller has locked and which is not a member of a group.
func (d *Driver) deleteSnapshot(ctx context.Context, n snapshot) error {
	n.Phase = phaseDeleting
	if err := d.store.putSnapshot(n); err != nil {
		return err
	}
	if err := d.removeData(ctx, n.ID, n.Type); err != nil {
		return err
	}
	return d.store.dropSnapshot(n.ID)
}

// GetSnapshot returns one snapshot (CSI 1.13 GetSnapshot).
func (s *controllerServer) GetSnapshot(
	_ context.Context, req *csi.GetSnapshotRequest,
) (*csi.GetSnapshotResponse, error) {
	if req.GetSnapshotId() == "" {
		return nil, invalid("snapshot_id is missing")
	}
	n, err := s.driver.readySnapshot(req.GetSnapshotId())
	if err != nil {
		return nil, err
	}
	return &csi.GetSnapshotResponse{Snapshot: describeSnapshot(n)}, nil
}

// ListSnapshots returns the requested snapshots, or all, sorted by id (CSI 1.13 ListSnapshots).
func (s *controllerServer) ListSnapshots(
	_ context.Context, req *csi.ListSnapshotsRequest,
) (*csi.ListSnapshotsResponse, error) {
	var all []snapshot
	for _, n := range s.driver.store.listSnapshots() {
		if (req.GetSnapshotId() == "" || n.ID == req.GetSnapshotId()) &&
			(req.GetSourceVolumeId() == "" || n.SourceVolume == req.GetSourceVolumeId()) {
			all = append(all, n)
		}
	}
	page, next, err := paginate(all, snapshotID, pageOf(req))
	if err != nil {
		return nil, err
	}
	resp := &csi.ListSnapshotsResponse{NextToken: next}
	for _, n := range page {
		resp.Entries = append(resp.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: describeSnapshot(n)})
	}
	return resp, nil
}

func describeSnapshot(n snapshot) *csi.Snapshot {
	return &csi.Snapshot{
		SnapshotId: n.ID, SourceVolumeId: n.SourceVolume, SizeBytes: n.CapacityBytes,
		CreationTime: timestamppb.New(n.Created), ReadyToUse: n.Phase == phaseReady, GroupSnapshotId: n.Group,
	}
}
