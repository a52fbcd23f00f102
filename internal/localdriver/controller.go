package localdriver

import (
	"context"
	"errors"
	"io/fs"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

type controllerServer struct {
	csi.UnimplementedControllerServer
	driver *Driver
}

// controllerCapabilities are the capabilities of the Controller service. PUBLISH_UNPUBLISH_VOLUME
// is missing because volumes are already on their node.
var controllerCapabilities = []csi.ControllerServiceCapability_RPC_Type{
	csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
	csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
	csi.ControllerServiceCapability_RPC_GET_CAPACITY,
	csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
	csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
	csi.ControllerServiceCapability_RPC_GET_SNAPSHOT,
	csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
	csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
	csi.ControllerServiceCapability_RPC_MODIFY_VOLUME,
	csi.ControllerServiceCapability_RPC_GET_VOLUME,
	csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH,
	csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
}

// ControllerGetCapabilities returns the capabilities of the service.
func (s *controllerServer) ControllerGetCapabilities(context.Context,
	*csi.ControllerGetCapabilitiesRequest,
) (*csi.ControllerGetCapabilitiesResponse, error) {
	resp := &csi.ControllerGetCapabilitiesResponse{}
	for _, c := range controllerCapabilities {
		resp.Capabilities = append(resp.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: c}},
		})
	}
	return resp, nil
}

// DeleteVolume deletes a volume and its data (CSI 1.13 DeleteVolume). It answers
// FAILED_PRECONDITION if the volume is in use on the node, and OK if it does not exist. Its
// snapshots remain.
func (s *controllerServer) DeleteVolume(
	ctx context.Context, req *csi.DeleteVolumeRequest,
) (*csi.DeleteVolumeResponse, error) {
	id := req.GetVolumeId()
	if id == "" {
		return nil, invalid("volume_id is missing")
	}
	d := s.driver
	release, err := d.locks.tryLock(lockVolume(id))
	if err != nil {
		return nil, err
	}
	defer release()
	v, ok, err := d.store.volume(id)
	if err != nil {
		return nil, err
	}
	if ok {
		err = d.deleteVolume(ctx, v)
	}
	if err != nil {
		return nil, err
	}
	return &csi.DeleteVolumeResponse{}, nil
}

// deleteVolume deletes v, which the caller has locked. It can be repeated after a crash at any
// point.
func (d *Driver) deleteVolume(ctx context.Context, v volume) error {
	if err := d.mustBeIdle(ctx, v); err != nil {
		return err
	}
	if v.Phase != phaseDeleting {
		v.Phase = phaseDeleting
		if err := d.store.putVolume(v); err != nil {
			return err
		}
	}
	if err := d.removeData(ctx, v.ID, v.Type); err != nil {
		return err
	}
	if err := d.store.putAttachment(attachment{ID: v.ID}); err != nil {
		return err
	}
	return d.store.dropVolume(v.ID)
}

// mustBeIdle returns FAILED_PRECONDITION if the kernel shows that the volume is in use.
func (d *Driver) mustBeIdle(ctx context.Context, v volume) error {
	a := d.store.attachment(v.ID)
	paths := []string{}
	if a.Stage != nil {
		paths = append(paths, a.Stage.Path)
	}
	for path := range a.Targets {
		paths = append(paths, path)
	}
	for _, path := range paths {
		info, err := d.mounts.Look(ctx, path)
		if err != nil {
			return err
		}
		if info.Mounted {
			return precondition("volume %s is in use: mounted at %s", v.ID, path)
		}
	}
	if v.Type != typeImage {
		return nil
	}
	devs, err := findLoops(d.store.dataPath(v.ID, v.Type))
	defer closeLoops(devs)
	if err == nil && len(devs) > 0 {
		err = precondition("volume %s is in use: attached to %s", v.ID, devs[0].path)
	}
	return err
}

// ValidateVolumeCapabilities confirms the capabilities of a volume (CSI 1.13
// ValidateVolumeCapabilities). If the volume lacks one, the message says so.
func (s *controllerServer) ValidateVolumeCapabilities(_ context.Context,
	req *csi.ValidateVolumeCapabilitiesRequest,
) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if req.GetVolumeId() == "" || len(req.GetVolumeCapabilities()) == 0 {
		return nil, invalid("volume_id or volume_capabilities is missing")
	}
	v, err := s.driver.mustVolume(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	for _, c := range req.GetVolumeCapabilities() {
		reason := unsupported(v.Type, c)
		if _, err := parseUse(c); err != nil {
			reason = err.Error()
		}
		if reason != "" {
			return &csi.ValidateVolumeCapabilitiesResponse{Message: reason}, nil
		}
	}
	if _, err := parseType(req.GetParameters()); err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: req.GetVolumeContext(), VolumeCapabilities: req.GetVolumeCapabilities(),
		Parameters: req.GetParameters(),
	}}, nil
}

// mustVolume returns the record of a volume that exists and is complete.
func (d *Driver) mustVolume(id string) (volume, error) {
	v, ok, err := d.store.volume(id)
	switch {
	case err != nil:
		return volume{}, err
	case !ok:
		return volume{}, noVolume(id)
	case v.Phase == phaseDeleting:
		return volume{}, noVolume(id)
	case v.Phase != phaseReady:
		return volume{}, precondition("volume %s is not ready: its copy is not finished, repeat CreateVolume", id)
	}
	return v, nil
}

// ControllerExpandVolume enlarges a volume (CSI 1.13 ControllerExpandVolume). An image also needs
// NodeExpandVolume. A volume that is not staged grows at its next NodeStageVolume.
func (s *controllerServer) ControllerExpandVolume(_ context.Context,
	req *csi.ControllerExpandVolumeRequest,
) (*csi.ControllerExpandVolumeResponse, error) {
	id := req.GetVolumeId()
	if id == "" || req.GetCapacityRange() == nil {
		return nil, invalid("volume_id or capacity_range is missing")
	}
	d := s.driver
	release, err := d.locks.tryLock(lockVolume(id))
	if err != nil {
		return nil, err
	}
	defer release()
	v, err := d.mustVolume(id)
	if err != nil {
		return nil, err
	}
	if c := req.GetVolumeCapability(); c != nil {
		if reason := unsupported(v.Type, c); reason != "" {
			return nil, invalid("%s", reason)
		}
	}
	size, err := sizeToGrowTo(v, req.GetCapacityRange())
	if err != nil {
		return nil, err
	}
	if size > v.CapacityBytes { // else an earlier call reserved it; the disk may be full now
		if v, err = d.reserve(v, size); err != nil {
			return nil, err
		}
	}
	if v.Type == typeImage {
		if err := d.growData(v); err != nil {
			return nil, err
		}
	}
	return &csi.ControllerExpandVolumeResponse{
		CapacityBytes: v.CapacityBytes, NodeExpansionRequired: v.Type == typeImage,
	}, nil
}

// sizeToGrowTo returns the new size of v for r, in bytes. It is never less than the current size.
func sizeToGrowTo(v volume, r *csi.CapacityRange) (int64, error) {
	switch required, limit := r.GetRequiredBytes(), r.GetLimitBytes(); {
	case required == 0 && limit == 0:
		return 0, invalid("capacity_range is empty")
	case limit > 0 && limit < v.CapacityBytes:
		return 0, refuse(codes.OutOfRange, "volume %s has %d bytes, the limit is %d", v.ID, v.CapacityBytes, limit)
	case required == 0:
		return v.CapacityBytes, nil
	}
	return sizeFor(r, v.CapacityBytes)
}

// reserve records v with size as its capacity if there is enough space.
func (d *Driver) reserve(v volume, size int64) (volume, error) {
	if v.Type != typeImage {
		v.CapacityBytes = size
		return v, d.store.putVolume(v)
	}
	d.space.Lock()
	defer d.space.Unlock()
	free, total, err := d.freeSpace()
	if err != nil {
		return v, err
	}
	already := int64(0)
	if known, ok, err := d.store.volume(v.ID); err == nil && ok {
		already = known.CapacityBytes
	}
	switch more := size - already; {
	case size > total:
		return v, refuse(codes.OutOfRange, "%d bytes are requested, but the node's storage has %d in total", size, total)
	case more > free:
		return v, refuse(codes.ResourceExhausted, "%d more bytes are requested, but the node has %d left", more, free)
	}
	v.CapacityBytes = size
	return v, d.store.putVolume(v)
}

// ControllerGetVolume describes one volume (CSI 1.13 ControllerGetVolume).
func (s *controllerServer) ControllerGetVolume(_ context.Context,
	req *csi.ControllerGetVolumeRequest,
) (*csi.ControllerGetVolumeResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, invalid("volume_id is missing")
	}
	v, err := s.driver.mustVolume(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return &csi.ControllerGetVolumeResponse{
		Volume: s.driver.describe(v), Status: &csi.ControllerGetVolumeResponse_VolumeStatus{},
	}, nil
}

// describe returns the CO's view of a volume.
func (d *Driver) describe(v volume) *csi.Volume {
	out := &csi.Volume{
		VolumeId: v.ID, CapacityBytes: v.CapacityBytes, AccessibleTopology: []*csi.Topology{d.topology()},
	}
	switch {
	case v.Source == nil:
	case v.Source.Snapshot != "":
		out.ContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: v.Source.Snapshot},
		}}
	default:
		out.ContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
			Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: v.Source.Volume},
		}}
	}
	return out
}

// ListVolumes returns the volumes that CreateVolume made, sorted by id, without inline volumes (CSI
// 1.13 ListVolumes).
func (s *controllerServer) ListVolumes(
	_ context.Context, req *csi.ListVolumesRequest,
) (*csi.ListVolumesResponse, error) {
	all := s.driver.store.listVolumes()
	page, next, err := paginate(all, volumeID, pageOf(req))
	if err != nil {
		return nil, err
	}
	resp := &csi.ListVolumesResponse{NextToken: next}
	for _, v := range page {
		resp.Entries = append(resp.Entries, &csi.ListVolumesResponse_Entry{
			Volume: s.driver.describe(v), Status: &csi.ListVolumesResponse_VolumeStatus{},
		})
	}
	return resp, nil
}

// GetCapacity returns how much space can still be requested (CSI 1.13 GetCapacity).
func (s *controllerServer) GetCapacity(
	_ context.Context, req *csi.GetCapacityRequest,
) (*csi.GetCapacityResponse, error) {
	d := s.driver
	kind, err := parseType(req.GetParameters())
	if err != nil {
		return nil, err
	}
	for _, c := range req.GetVolumeCapabilities() {
		if _, err := parseUse(c); err != nil || unsupported(kind, c) != "" {
			return &csi.GetCapacityResponse{}, nil
		}
	}
	if t := req.GetAccessibleTopology(); t != nil && !d.matches(t) {
		return &csi.GetCapacityResponse{}, nil
	}
	free, _, err := d.freeSpace()
	if err != nil {
		return nil, err
	}
	return &csi.GetCapacityResponse{AvailableCapacity: max(free, 0) / sizeUnit * sizeUnit}, nil
}

// freeSpace returns how many bytes are neither used nor reserved for an image, and the size of the
// file system. Blocks that an image shares with its copies count as the image's own.
func (d *Driver) freeSpace() (free, total int64, err error) {
	free, total, err = statfsBytes(d.dir)
	if err != nil {
		return 0, 0, err
	}
	for _, v := range d.store.images() {
		have, err := allocatedBytes(d.store.dataPath(v.ID, v.Type))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, 0, err
		}
		free -= max(v.CapacityBytes-have, 0)
	}
	return free, total, nil
}
