package csistrict

import (
	"cmp"
	"context"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Sizes of volumes, in bytes.
const (
	defaultSize = 1 << 20
	maxSize     = 1 << 40
)

type controller struct {
	csi.UnimplementedControllerServer
	driver *Driver
}

// CreateVolume implements the Controller service. The parameter "tag" becomes
// part of the volume context; faults find volumes by it.
func (s *controller) CreateVolume(ctx context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if req.GetName() == "" || len(req.GetVolumeCapabilities()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "name and volume_capabilities must be set")
	}
	size := req.GetCapacityRange().GetRequiredBytes()
	if limit := req.GetCapacityRange().GetLimitBytes(); size > maxSize || limit != 0 && limit < size {
		return nil, status.Error(codes.OutOfRange, "capacity_range: no size is in it")
	}
	id := req.GetName()
	block := slices.ContainsFunc(req.GetVolumeCapabilities(), func(c *csi.VolumeCapability) bool { return c.GetBlock() != nil })
	s.driver.mu.Lock()
	defer s.driver.mu.Unlock()
	all := s.driver.judge.model.Volumes
	if v, ok := all[id]; ok {
		if v.Block != block || v.SizeBytes < size || req.GetCapacityRange().GetLimitBytes() != 0 && v.SizeBytes > req.GetCapacityRange().GetLimitBytes() {
			return nil, status.Error(codes.AlreadyExists, "the volume is there and is another")
		}
		return &csi.CreateVolumeResponse{Volume: s.driver.told(v, req.GetVolumeContentSource())}, nil
	}
	from, err := s.driver.sourceOf(req.GetVolumeContentSource())
	if err != nil {
		return nil, err
	}
	if from.dir != "" && (from.block != block || size != 0 && size < from.sizeBytes) {
		return nil, status.Error(codes.InvalidArgument, "volume_content_source: larger than the volume, or of another access type")
	}
	v := &Volume{
		ID: id, Name: req.GetName(), Zone: s.driver.zoneFor(req.GetAccessibilityRequirements()), Tag: req.GetParameters()["tag"], Block: block, SizeBytes: cmp.Or(size, from.sizeBytes, defaultSize),
		Context: map[string]string{"tag": req.GetParameters()["tag"], "name": req.GetName()},
		Params:  maps.Clone(req.GetParameters()), Mutable: maps.Clone(req.GetMutableParameters()),
	}
	if err := s.driver.makeData(ctx, v, from); err != nil {
		return nil, err
	}
	all[id] = v
	return &csi.CreateVolumeResponse{Volume: s.driver.told(v, req.GetVolumeContentSource())}, nil
}

func (d *Driver) makeData(ctx context.Context, v *Volume, from source) error {
	if from.dir != "" {
		if err := copyDir(ctx, from.dir, d.volumeDir(v.ID)); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(d.dataDir(v.ID), 0o755); err != nil || !v.Block {
		return err
	}
	f, err := os.OpenFile(d.image(v.ID), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Truncate(v.SizeBytes)
}

// told returns the volume for the CO; source is the source that the request named.
func (d *Driver) told(v *Volume, source *csi.VolumeContentSource) *csi.Volume {
	out := &csi.Volume{VolumeId: v.ID, CapacityBytes: v.SizeBytes, VolumeContext: maps.Clone(v.Context), ContentSource: source}
	if v.Zone != "" {
		out.AccessibleTopology = []*csi.Topology{d.topology(v.Zone)}
	}
	return out
}

// zoneKey is the topology key of the driver's zones.
func (d *Driver) zoneKey() string { return "topology." + d.cfg.Name + "/zone" }

func (d *Driver) topology(zone string) *csi.Topology {
	return &csi.Topology{Segments: map[string]string{d.zoneKey(): zone}}
}

// zoneFor returns the zone of a new volume: the preferred one, else the first allowed one.
func (d *Driver) zoneFor(r *csi.TopologyRequirement) string {
	for _, t := range slices.Concat(r.GetPreferred(), r.GetRequisite()) {
		if zone := t.GetSegments()[d.zoneKey()]; zone != "" {
			return zone
		}
	}
	return ""
}

// DeleteVolume implements the Controller service.
func (s *controller) DeleteVolume(_ context.Context, req *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	id := req.GetVolumeId()
	if _, err := s.driver.volume(id); err != nil {
		return &csi.DeleteVolumeResponse{}, nil // deleted before
	}
	if err := eachLoop(s.driver.image(id), unix.LOOP_CLR_FD); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(s.driver.volumeDir(id)); err != nil {
		return nil, err
	}
	s.driver.mu.Lock()
	defer s.driver.mu.Unlock()
	delete(s.driver.judge.model.Volumes, id)
	return &csi.DeleteVolumeResponse{}, nil
}

// ControllerPublishVolume implements the Controller service.
func (s *controller) ControllerPublishVolume(_ context.Context, req *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	v, err := s.driver.volume(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	attached := map[string]string{"device": "disk-" + v.ID, "readonly": strconv.FormatBool(req.GetReadonly())}
	s.driver.update(v.ID, func(v *Volume) { v.NodeID, v.Attach.Context = req.GetNodeId(), attached })
	return &csi.ControllerPublishVolumeResponse{PublishContext: attached}, nil
}

// ControllerUnpublishVolume implements the Controller service.
func (s *controller) ControllerUnpublishVolume(_ context.Context, req *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	if v, err := s.driver.volume(req.GetVolumeId()); err == nil {
		if err := s.driver.counted(v); err != nil {
			return nil, err
		}
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// ValidateVolumeCapabilities implements the Controller service.
func (s *controller) ValidateVolumeCapabilities(_ context.Context, req *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if len(req.GetVolumeCapabilities()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "volume_capabilities: not set")
	}
	v, err := s.driver.volume(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	for _, c := range req.GetVolumeCapabilities() {
		if v.Block != (c.GetBlock() != nil) {
			return &csi.ValidateVolumeCapabilitiesResponse{Message: "the access type is not the volume's"}, nil
		}
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: req.GetVolumeContext(), VolumeCapabilities: req.GetVolumeCapabilities(), Parameters: req.GetParameters(),
	}}, nil
}

// ListVolumes implements the Controller service.
func (s *controller) ListVolumes(_ context.Context, req *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	s.driver.mu.Lock()
	defer s.driver.mu.Unlock()
	all := s.driver.judge.model.Volumes
	ids, next, err := page(slices.Sorted(maps.Keys(all)), req.GetStartingToken(), req.GetMaxEntries())
	if err != nil {
		return nil, err
	}
	resp := &csi.ListVolumesResponse{NextToken: next}
	for _, id := range ids {
		resp.Entries = append(resp.Entries, &csi.ListVolumesResponse_Entry{Volume: s.driver.told(all[id], nil)})
	}
	return resp, nil
}

// page returns the part of a sorted list after a token, which is the last id of the
// previous page. The part has at most most entries, unless most is 0.
func page(ids []string, token string, most int32) (here []string, next string, err error) {
	if most < 0 {
		return nil, "", status.Error(codes.InvalidArgument, "max_entries: negative")
	}
	if token != "" {
		last, ok := strings.CutPrefix(token, "after ")
		if !ok {
			return nil, "", status.Error(codes.Aborted, "starting_token: not one of this driver's")
		}
		ids = slices.DeleteFunc(ids, func(id string) bool { return id <= last })
	}
	if most > 0 && len(ids) > int(most) {
		ids = ids[:most]
		next = "after " + ids[most-1]
	}
	return ids, next, nil
}

// ControllerExpandVolume implements the Controller service.
func (s *controller) ControllerExpandVolume(_ context.Context, req *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	size := req.GetCapacityRange().GetRequiredBytes()
	if req.GetCapacityRange() == nil {
		return nil, status.Error(codes.InvalidArgument, "capacity_range: not set")
	}
	if size > maxSize {
		return nil, status.Error(codes.OutOfRange, "capacity_range: too large")
	}
	v, err := s.driver.volume(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	size = max(size, v.SizeBytes)
	if v.Block {
		if err := os.Truncate(s.driver.image(v.ID), size); err != nil {
			return nil, err
		}
	}
	s.driver.update(v.ID, func(v *Volume) { v.SizeBytes = size })
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: size, NodeExpansionRequired: s.driver.script().serves(byNode, expansion)}, nil
}

// ControllerModifyVolume implements the Controller service.
func (s *controller) ControllerModifyVolume(_ context.Context, req *csi.ControllerModifyVolumeRequest) (*csi.ControllerModifyVolumeResponse, error) {
	if len(req.GetMutableParameters()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "mutable_parameters: not set")
	}
	v, err := s.driver.volume(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	s.driver.update(v.ID, func(v *Volume) { v.Mutable = maps.Clone(req.GetMutableParameters()) })
	return &csi.ControllerModifyVolumeResponse{}, nil
}

// ControllerGetVolumeHealth implements the Controller service.
func (s *controller) ControllerGetVolumeHealth(_ context.Context, req *csi.ControllerGetVolumeHealthRequest) (*csi.ControllerGetVolumeHealthResponse, error) {
	v, err := s.driver.volume(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return &csi.ControllerGetVolumeHealthResponse{VolumeHealth: s.driver.health(v)}, nil
}

// ControllerGetCapabilities implements the Controller service.
func (s *controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	var all []*csi.ControllerServiceCapability
	for _, t := range s.driver.script().controllerCan() {
		all = append(all, &csi.ControllerServiceCapability{Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}}})
	}
	return &csi.ControllerGetCapabilitiesResponse{Capabilities: all}, nil
}
