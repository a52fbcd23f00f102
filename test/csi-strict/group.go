package csistrict

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Group is the driver's state of a group snapshot: copies of several volumes, all or none.
type Group struct {
	ID string `json:"id"`
	// Sources are the ids of the volumes, Snapshots those of the members, in the same order.
	Sources   []string  `json:"sources"`
	Snapshots []string  `json:"snapshots"`
	Created   time.Time `json:"created"`
}

type groupController struct {
	csi.UnimplementedGroupControllerServer
	driver *Driver
}

// shown returns a group for the CO. The caller holds mu.
func (d *Driver) shown(g *Group) *csi.VolumeGroupSnapshot {
	out := &csi.VolumeGroupSnapshot{GroupSnapshotId: g.ID, CreationTime: timestamppb.New(g.Created), ReadyToUse: true}
	for _, id := range g.Snapshots {
		out.Snapshots = append(out.Snapshots, d.judge.model.Snapshots[id].proto())
	}
	return out
}

// GroupControllerGetCapabilities implements the GroupController service.
func (s *groupController) GroupControllerGetCapabilities(context.Context, *csi.GroupControllerGetCapabilitiesRequest) (*csi.GroupControllerGetCapabilitiesResponse, error) {
	resp := &csi.GroupControllerGetCapabilitiesResponse{}
	if s.driver.script().can(groupSnapshots) {
		resp.Capabilities = append(resp.Capabilities, &csi.GroupControllerServiceCapability{Type: &csi.GroupControllerServiceCapability_Rpc{
			Rpc: &csi.GroupControllerServiceCapability_RPC{Type: csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT},
		}})
	}
	return resp, nil
}

// CreateVolumeGroupSnapshot implements the GroupController service. No other call of the controller's
// services makes or changes a volume meanwhile; the caller has to keep pods from writing.
func (s *groupController) CreateVolumeGroupSnapshot(ctx context.Context, req *csi.CreateVolumeGroupSnapshotRequest) (*csi.CreateVolumeGroupSnapshotResponse, error) {
	d, id := s.driver, req.GetName()
	d.mu.Lock()
	defer d.mu.Unlock()
	model := d.judge.model
	if have, ok := model.Groups[id]; ok {
		if !same(have.Sources, req.GetSourceVolumeIds()) {
			return nil, status.Errorf(codes.AlreadyExists, "group %s is of volumes %q", id, have.Sources)
		}
		return &csi.CreateVolumeGroupSnapshotResponse{GroupSnapshot: d.shown(have)}, nil
	}
	made := &Group{ID: id, Sources: req.GetSourceVolumeIds(), Created: time.Now()}
	var members []*Snapshot
	for i, source := range made.Sources {
		v, ok := model.Volumes[source]
		if !ok {
			return nil, status.Errorf(codes.NotFound, "volume %s: there is none", source)
		}
		m := &Snapshot{
			ID: fmt.Sprintf("member-%d-%x", i, sha256.Sum256([]byte(id))), Source: source, Group: id,
			Block: v.Block, SizeBytes: v.SizeBytes, Created: made.Created,
		}
		members, made.Snapshots = append(members, m), append(made.Snapshots, m.ID)
	}
	for _, m := range members {
		if err := copyDir(ctx, d.volumeDir(m.Source), d.snapshotDir(m.ID)); err != nil {
			return nil, errors.Join(err, d.removeCopies(made))
		}
	}
	model.Groups[id] = made
	for _, m := range members {
		model.Snapshots[m.ID] = m
	}
	return &csi.CreateVolumeGroupSnapshotResponse{GroupSnapshot: d.shown(made)}, nil
}

func (d *Driver) removeCopies(g *Group) (err error) {
	for _, id := range g.Snapshots {
		err = errors.Join(err, os.RemoveAll(d.snapshotDir(id)))
	}
	return err
}

// DeleteVolumeGroupSnapshot implements the GroupController service.
func (s *groupController) DeleteVolumeGroupSnapshot(_ context.Context, req *csi.DeleteVolumeGroupSnapshotRequest) (*csi.DeleteVolumeGroupSnapshotResponse, error) {
	d := s.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	g, ok := d.judge.model.Groups[req.GetGroupSnapshotId()]
	if !ok {
		return &csi.DeleteVolumeGroupSnapshotResponse{}, nil // deleted before
	}
	if err := d.removeCopies(g); err != nil {
		return nil, err
	}
	delete(d.judge.model.Groups, g.ID)
	for _, id := range g.Snapshots {
		delete(d.judge.model.Snapshots, id)
	}
	return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
}

// GetVolumeGroupSnapshot implements the GroupController service.
func (s *groupController) GetVolumeGroupSnapshot(_ context.Context, req *csi.GetVolumeGroupSnapshotRequest) (*csi.GetVolumeGroupSnapshotResponse, error) {
	s.driver.mu.Lock()
	defer s.driver.mu.Unlock()
	g, ok := s.driver.judge.model.Groups[req.GetGroupSnapshotId()]
	if !ok {
		return nil, status.Errorf(codes.NotFound, "group %s: there is none", req.GetGroupSnapshotId())
	}
	return &csi.GetVolumeGroupSnapshotResponse{GroupSnapshot: s.driver.shown(g)}, nil
}
