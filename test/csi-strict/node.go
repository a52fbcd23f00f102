package csistrict

import (
	"context"
	"errors"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type node struct {
	csi.UnimplementedNodeServer
	driver *Driver
	id     string // of the node that it serves; "" if there is only one
}

// NodeStageVolume implements the Node service.
func (s *node) NodeStageVolume(_ context.Context, req *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	v, err := s.driver.volume(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if v.Block != (req.GetVolumeCapability().GetBlock() != nil) {
		return nil, status.Error(codes.InvalidArgument, "volume_capability: access type is not the volume's")
	}
	if !v.Block {
		err = bindDir(s.driver.dataDir(v.ID), req.GetStagingTargetPath())
	}
	return &csi.NodeStageVolumeResponse{}, err
}

// NodeUnstageVolume implements the Node service.
func (s *node) NodeUnstageVolume(_ context.Context, req *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	v, err := s.driver.volume(req.GetVolumeId())
	if err == nil {
		err = s.driver.counted(v)
	}
	if err == nil {
		err = errors.Join(unmount(req.GetStagingTargetPath()), eachLoop(s.driver.image(v.ID), unix.LOOP_CLR_FD))
	}
	return &csi.NodeUnstageVolumeResponse{}, err
}

// NodePublishVolume implements the Node service.
func (s *node) NodePublishVolume(_ context.Context, req *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	v, err := s.driver.volume(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if v.Block != (req.GetVolumeCapability().GetBlock() != nil) {
		return nil, status.Error(codes.InvalidArgument, "volume_capability: access type is not the volume's")
	}
	if !isMount(req.GetTargetPath()) {
		s.driver.count(v.ID, req.GetTargetPath(), +1)
	}
	if v.Block {
		device, err := loopFor(s.driver.image(v.ID))
		if err == nil {
			err = bindFile(device, req.GetTargetPath())
		}
		return &csi.NodePublishVolumeResponse{}, err
	}
	source := s.driver.dataDir(v.ID)
	if path := req.GetStagingTargetPath(); path != "" {
		source = path
	}
	if v.Ephemeral {
		if err := os.MkdirAll(source, 0o755); err != nil {
			return nil, err
		}
	}
	if err = bindDir(source, req.GetTargetPath()); err == nil && req.GetReadonly() {
		err = readOnly(req.GetTargetPath())
	}
	return &csi.NodePublishVolumeResponse{}, err
}

// NodeUnpublishVolume implements the Node service.
func (s *node) NodeUnpublishVolume(_ context.Context, req *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	v, err := s.driver.volume(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if err := remove(req.GetTargetPath()); err != nil {
		return nil, err
	}
	s.driver.count(v.ID, req.GetTargetPath(), -1)
	if v.Block && len(v.Targets) <= 1 {
		err = eachLoop(s.driver.image(v.ID), unix.LOOP_CLR_FD)
	}
	if v.Ephemeral && len(v.Targets) <= 1 && !isMount(req.GetTargetPath()) {
		err = os.RemoveAll(s.driver.dataDir(v.ID))
	}
	return &csi.NodeUnpublishVolumeResponse{}, err
}

// NodeExpandVolume implements the Node service.
func (s *node) NodeExpandVolume(_ context.Context, req *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	v, err := s.driver.volume(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if v.Block {
		err = eachLoop(s.driver.image(v.ID), unix.LOOP_SET_CAPACITY)
	}
	if !s.driver.script().serves(byController, expansion) {
		v.SizeBytes = max(v.SizeBytes, req.GetCapacityRange().GetRequiredBytes())
		s.driver.update(v.ID, func(known *Volume) { known.SizeBytes = v.SizeBytes })
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: v.SizeBytes}, err
}

// NodeGetVolumeStats implements the Node service.
func (s *node) NodeGetVolumeStats(_ context.Context, req *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	v, err := s.driver.volume(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if v.Block {
		return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: v.SizeBytes}}}, nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(req.GetVolumePath(), &st); err != nil {
		return nil, status.Error(codes.NotFound, err.Error())
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: v.SizeBytes, Available: v.SizeBytes},
		{Unit: csi.VolumeUsage_INODES, Total: int64(st.Files), Available: int64(st.Ffree), Used: int64(st.Files - st.Ffree)},
	}}, nil
}

// NodeGetVolumeHealth implements the Node service.
func (s *node) NodeGetVolumeHealth(_ context.Context, req *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	v, err := s.driver.volume(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: s.driver.health(v)}, nil
}

// health returns the script's troubles of a volume.
func (d *Driver) health(v Volume) *csi.VolumeHealth {
	health := &csi.VolumeHealth{VolumeId: v.ID}
	all := d.script().Health
	for _, t := range append(all[v.ID], all[v.Tag]...) {
		health.HealthStatuses = append(health.HealthStatuses, &csi.VolumeHealth_VolumeHealthEntry{
			Status: csi.VolumeHealthErrorType(csi.VolumeHealthErrorType_value[t.Status]), Reason: t.Reason, Message: t.Message,
		})
	}
	return health
}

// NodeGetStorageHealth implements the Node service.
func (s *node) NodeGetStorageHealth(context.Context, *csi.NodeGetStorageHealthRequest) (*csi.NodeGetStorageHealthResponse, error) {
	r := &csi.NodeGetStorageHealthResponse{}
	for _, t := range s.driver.script().Storage {
		r.BackendHealth = append(r.BackendHealth, &csi.NodeGetStorageHealthResponse_StorageBackendHealth{
			Status: csi.StorageHealthErrorType(csi.StorageHealthErrorType_value[t.Status]), Reason: t.Reason, Message: t.Message,
		})
	}
	return r, nil
}

// NodeGetCapabilities implements the Node service.
func (s *node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	var all []*csi.NodeServiceCapability
	for _, t := range s.driver.script().nodeCan() {
		all = append(all, &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: t}}})
	}
	return &csi.NodeGetCapabilitiesResponse{Capabilities: all}, nil
}

// NodeGetInfo implements the Node service.
func (s *node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	s.driver.mu.Lock()
	defer s.driver.mu.Unlock()
	most := s.driver.judge.script.MaxVolumes
	if s.id == "" {
		return &csi.NodeGetInfoResponse{NodeId: s.driver.judge.node(), MaxVolumesPerNode: most}, nil
	}
	return &csi.NodeGetInfoResponse{NodeId: s.id, MaxVolumesPerNode: most, AccessibleTopology: s.driver.topology(s.driver.cfg.Zones[s.id])}, nil
}
