package localdriver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"
)

type groupServer struct {
	csi.UnimplementedGroupControllerServer
	driver *Driver
}

// GroupControllerGetCapabilities returns the capabilities of the service.
func (s *groupServer) GroupControllerGetCapabilities(context.Context,
	*csi.GroupControllerGetCapabilitiesRequest,
) (*csi.GroupControllerGetCapabilitiesResponse, error) {
	const groups = csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT
	return &csi.GroupControllerGetCapabilitiesResponse{Capabilities: []*csi.GroupControllerServiceCapability{{
		Type: &csi.GroupControllerServiceCapability_Rpc{Rpc: &csi.GroupControllerServiceCapability_RPC{Type: groups}},
	}}}, nil
}

// CreateVolumeGroupSnapshot copies volumes, all at one moment (CSI 1.13 CreateVolumeGroupSnapshot).
// It answers FAILED_PRECONDITION if a volume cannot be frozen. After an error, nothing of the group
// is left.
func (s *groupServer) CreateVolumeGroupSnapshot(ctx context.Context,
	req *csi.CreateVolumeGroupSnapshotRequest,
) (*csi.CreateVolumeGroupSnapshotResponse, error) {
	if req.GetName() == "" {
		return nil, invalid("name is missing")
	}
	if err := errors.Join(checkSnapshot(req), checkSources(req.GetSourceVolumeIds())); err != nil {
		return nil, err
	}
	d := s.driver
	held := []string{lockGroupName(req.GetName())}
	for _, id := range req.GetSourceVolumeIds() {
		held = append(held, lockVolume(id))
	}
	release, err := d.locks.tryLock(held...)
	if err != nil {
		return nil, err
	}
	defer release()
	g, found, err := d.store.groupNamed(req.GetName())
	switch {
	case err != nil:
		return nil, err
	case found && !sameIDs(g.sources(), req.GetSourceVolumeIds()):
		return nil, refuse(codes.AlreadyExists, "group snapshot %s of that name is of volumes %q", g.ID, g.sources())
	case found && g.Phase == phaseDeleting:
		return nil, refuse(codes.Aborted, "group snapshot %s of that name is being deleted", g.ID)
	case found && g.Phase == phaseReady:
		return &csi.CreateVolumeGroupSnapshotResponse{GroupSnapshot: describeGroup(g)}, nil
	case !found:
		g = newGroup(req.GetName(), req.GetSourceVolumeIds())
	}
	if g, err = d.takeGroup(ctx, g); err != nil {
		return nil, err
	}
	return &csi.CreateVolumeGroupSnapshotResponse{GroupSnapshot: describeGroup(g)}, nil
}

// checkSources checks source_volume_ids, each of which becomes one member.
func checkSources(ids []string) error {
	if len(ids) == 0 {
		return invalid("source_volume_ids is empty: a group snapshot is of at least one volume")
	}
	for i, id := range ids {
		switch {
		case id == "":
			return invalid("source_volume_ids[%d] is empty", i)
		case slices.Contains(ids[:i], id):
			return invalid("source_volume_ids has volume %q twice", id)
		}
	}
	return nil
}

// sameIDs reports whether two lists have the same ids in any order.
func sameIDs(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// newGroup returns the record of a new group without copies.
func newGroup(name string, sources []string) group {
	g := group{ID: newID("group", name), Name: name, Phase: phaseCreating}
	for _, id := range sources {
		g.Members = append(g.Members, member{ID: newID("snap", name), SourceVolume: id})
	}
	return g
}

// sources returns the source volumes of the members.
func (g group) sources() (ids []string) {
	for _, m := range g.Members {
		ids = append(ids, m.SourceVolume)
	}
	return ids
}

// members returns the ids of the members.
func (g group) members() (ids []string) {
	for _, m := range g.Members {
		ids = append(ids, m.ID)
	}
	return ids
}

// lockMembers returns the lock keys of the members.
func (g group) lockMembers() (keys []string) {
	for _, m := range g.Members {
		keys = append(keys, lockSnapshot(m.ID))
	}
	return keys
}

// takeGroup makes g; after an error, nothing of it is left. If a crash interrupted g, it starts
// again, because the volumes may have been written since.
func (d *Driver) takeGroup(ctx context.Context, g group) (group, error) {
	release, err := d.locks.tryLock(append(g.lockMembers(), lockGroup(g.ID))...)
	if err != nil {
		return g, err
	}
	defer release()
	copies, err := d.groupCopies(ctx, g)
	if err != nil {
		return g, errors.Join(err, d.removeKnown(context.WithoutCancel(ctx), g))
	}
	g.Members, g.Created = slices.Clone(g.Members), time.Now() // the store has the old slice
	for i, c := range copies {
		g.Members[i].copied = c.from.copyInfo()
	}
	whole := g
	whole.Phase = phaseReady
	err = d.store.putGroup(g)
	if err == nil {
		err = d.makeCopies(ctx, copies)
	}
	if err == nil {
		err = d.store.putGroup(whole)
	}
	if err != nil {
		return g, errors.Join(err, d.removeGroup(context.WithoutCancel(ctx), g))
	}
	return whole, nil
}

// groupCopies returns the copies for the members of g. It checks, by the records and the kernel's
// mounts, that all volumes can be copied: a directory cannot be frozen, so it must not be in use.
func (d *Driver) groupCopies(ctx context.Context, g group) ([]copyOf, error) {
	copies := make([]copyOf, 0, len(g.Members))
	for _, m := range g.Members {
		v, err := d.original(source{Volume: m.SourceVolume})
		if err != nil {
			return nil, err
		}
		if v.Type == typeDirectory {
			if err := d.mustBeIdle(ctx, v); err != nil {
				return nil, fmt.Errorf("a volume of type directory cannot be frozen, so a group can contain it only while it is "+
					"not mounted: %w", err)
			}
		}
		copies = append(copies, copyOf{from: v, id: m.ID})
	}
	return copies, nil
}

// removeKnown removes what a crash left of g. It writes nothing if there is no record.
func (d *Driver) removeKnown(ctx context.Context, g group) error {
	_, known, err := d.store.group(g.ID)
	if err != nil || !known {
		return err
	}
	return d.removeGroup(ctx, g)
}

// removeGroup removes everything of g, whose phase says that it is incomplete: it writes g first
// and removes the record last.
func (d *Driver) removeGroup(ctx context.Context, g group) error {
	if err := d.store.putGroup(g); err != nil && !isFull(err) {
		return err
	}
	for _, m := range g.Members {
		if err := d.removeData(ctx, m.ID, m.Type); err != nil {
			return err
		}
	}
	return d.store.dropGroup(g)
}

// DeleteVolumeGroupSnapshot deletes a group and its members (CSI 1.13 DeleteVolumeGroupSnapshot). A
// group that does not exist is OK. Volumes made from members remain.
func (s *groupServer) DeleteVolumeGroupSnapshot(ctx context.Context,
	req *csi.DeleteVolumeGroupSnapshotRequest,
) (*csi.DeleteVolumeGroupSnapshotResponse, error) {
	if req.GetGroupSnapshotId() == "" {
		return nil, invalid("group_snapshot_id is missing")
	}
	d := s.driver
	release, err := d.locks.tryLock(lockGroup(req.GetGroupSnapshotId()))
	if err != nil {
		return nil, err
	}
	defer release()
	g, ok, err := d.store.group(req.GetGroupSnapshotId())
	if err != nil {
		return nil, err
	}
	if !ok {
		return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
	}
	if err := g.checkMembers(req.GetSnapshotIds()); err != nil {
		return nil, err
	}
	releaseMembers, err := d.locks.tryLock(g.lockMembers()...)
	if err != nil {
		return nil, err
	}
	defer releaseMembers()
	g.Phase = phaseDeleting
	if err := d.removeGroup(ctx, g); err != nil {
		return nil, err
	}
	return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
}

// checkMembers returns INVALID_ARGUMENT unless ids, the snapshot_ids of a request, are the members
// of g.
func (g group) checkMembers(ids []string) error {
	if sameIDs(g.members(), ids) {
		return nil
	}
	return invalid("snapshot_ids is %q, and the snapshots of group snapshot %s are %q", ids, g.ID, g.members())
}

// GetVolumeGroupSnapshot returns one group (CSI 1.13 GetVolumeGroupSnapshot).
func (s *groupServer) GetVolumeGroupSnapshot(_ context.Context,
	req *csi.GetVolumeGroupSnapshotRequest,
) (*csi.GetVolumeGroupSnapshotResponse, error) {
	if req.GetGroupSnapshotId() == "" {
		return nil, invalid("group_snapshot_id is missing")
	}
	g, ok, err := s.driver.store.group(req.GetGroupSnapshotId())
	if err != nil {
		return nil, err
	}
	if !ok || g.Phase != phaseReady {
		return nil, noGroup(req.GetGroupSnapshotId())
	}
	if err := g.checkMembers(req.GetSnapshotIds()); err != nil {
		return nil, err
	}
	return &csi.GetVolumeGroupSnapshotResponse{GroupSnapshot: describeGroup(g)}, nil
}

// describeGroup returns the CO's view of a group.
func describeGroup(g group) *csi.VolumeGroupSnapshot {
	out := &csi.VolumeGroupSnapshot{
		GroupSnapshotId: g.ID, CreationTime: timestamppb.New(g.Created), ReadyToUse: g.Phase == phaseReady,
	}
	for _, n := range g.snapshots() {
		out.Snapshots = append(out.Snapshots, describeSnapshot(n))
	}
	return out
}
