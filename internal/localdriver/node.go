package localdriver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

type nodeServer struct {
	csi.UnimplementedNodeServer
	driver *Driver
}

// nodeCapabilities are the capabilities of the Node service.
var nodeCapabilities = []csi.NodeServiceCapability_RPC_Type{
	csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
	csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
	csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
	csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
}

// NodeGetCapabilities returns the capabilities of the service.
func (s *nodeServer) NodeGetCapabilities(context.Context,
	*csi.NodeGetCapabilitiesRequest,
) (*csi.NodeGetCapabilitiesResponse, error) {
	resp := &csi.NodeGetCapabilitiesResponse{}
	for _, c := range nodeCapabilities {
		resp.Capabilities = append(resp.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: c}},
		})
	}
	return resp, nil
}

// NodeGetInfo identifies the node. The number of volumes is not limited.
func (s *nodeServer) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: s.driver.nodeID, AccessibleTopology: s.driver.topology()}, nil
}

// topology returns the topology of all volumes of this driver.
func (d *Driver) topology() *csi.Topology {
	return &csi.Topology{Segments: map[string]string{"topology." + d.name + "/node": d.nodeID}}
}

// matches reports whether t describes this node, by this driver's key.
func (d *Driver) matches(t *csi.Topology) bool {
	for key, want := range d.topology().GetSegments() {
		if t.GetSegments()[key] != want {
			return false
		}
	}
	return true
}

// beginCall checks a NodeStageVolume or NodePublishVolume request for path, the value of field, and
// locks the volume.
func (d *Driver) beginCall(req interface {
	GetVolumeId() string
	GetVolumeCapability() *csi.VolumeCapability
}, field, path string,
) (u use, release func(), err error) {
	if req.GetVolumeId() == "" {
		return use{}, nil, invalid("volume_id is missing")
	}
	if err := checkPath(field, path); err != nil {
		return use{}, nil, err
	}
	if u, err = parseUse(req.GetVolumeCapability()); err != nil {
		return use{}, nil, err
	}
	release, err = d.locks.tryLock(lockVolume(req.GetVolumeId()))
	return u, release, err
}

// NodeStageVolume mounts the file system of a volume at the staging path, or
// attaches the device of a raw block volume (CSI 1.13 NodeStageVolume).
func (s *nodeServer) NodeStageVolume(ctx context.Context,
	req *csi.NodeStageVolumeRequest,
) (*csi.NodeStageVolumeResponse, error) {
	d := s.driver
	u, release, err := d.beginCall(req, "staging_target_path", req.GetStagingTargetPath())
	if err != nil {
		return nil, err
	}
	defer release()
	v, err := d.mustVolume(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if reason := unsupported(v.Type, req.GetVolumeCapability()); reason != "" {
		return nil, precondition("%s", reason)
	}
	if err := d.stage(ctx, v, stage{Path: req.GetStagingTargetPath(), use: u}); err != nil {
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// stage stages v as want says, unless it is already.
func (d *Driver) stage(ctx context.Context, v volume, want stage) error {
	info, err := d.mounts.Look(ctx, want.Path)
	switch {
	case err != nil:
		return err
	case !info.Exists:
		return precondition("staging directory %s does not exist", want.Path)
	case info.Mounted && !d.knownStage(v.ID, want.Path):
		return precondition("something else is mounted at %s", want.Path)
	}
	if err := d.recordStage(ctx, v, want); err != nil {
		return err
	}
	switch {
	case want.Block:
		return d.stageBlock(v)
	case info.Mounted:
		return nil
	case v.Type == typeDirectory:
		return d.bindData(v, want.Path, false)
	}
	if err := d.mountImage(ctx, v, want.Path, want.use); err != nil {
		return err
	}
	if a := d.store.attachment(v.ID); a.Frozen {
		return d.thawLeftover(ctx, a)
	}
	return nil
}

// knownStage reports whether a recorded stage of this volume says that it is mounted at path.
func (d *Driver) knownStage(id, path string) bool {
	s := d.store.attachment(id).Stage
	return s != nil && s.Path == path && !s.Block
}

// recordStage records want, unless the volume is staged in another way.
func (d *Driver) recordStage(ctx context.Context, v volume, want stage) error {
	a := d.store.attachment(v.ID)
	if a.Stage != nil {
		if *a.Stage == want {
			return nil
		}
		there, err := d.isStaged(ctx, v, *a.Stage)
		switch {
		case err != nil:
			return err
		case there && a.Stage.Path == want.Path:
			return refuse(codes.AlreadyExists, "volume %s is staged at %s with another capability", v.ID, want.Path)
		case there:
			return precondition("volume %s is staged at %s", v.ID, a.Stage.Path)
		}
	}
	a.Stage = &want
	return d.store.putAttachment(a)
}

// isStaged asks the kernel whether s still exists.
func (d *Driver) isStaged(ctx context.Context, v volume, s stage) (bool, error) {
	if s.Block {
		return isAttached(d.store.dataPath(v.ID, v.Type))
	}
	info, err := d.mounts.Look(ctx, s.Path)
	return info.Mounted, err
}

// stageBlock attaches the device of a raw block volume, at its full size.
func (d *Driver) stageBlock(v volume) error {
	if err := d.growData(v); err != nil {
		return err
	}
	dev, err := loopFor(d.store.dataPath(v.ID, v.Type), false)
	if err != nil {
		return err
	}
	defer dev.Close()
	return dev.refresh()
}

// NodeUnstageVolume undoes NodeStageVolume (CSI 1.13 NodeUnstageVolume). It answers
// FAILED_PRECONDITION if the volume is still published.
func (s *nodeServer) NodeUnstageVolume(ctx context.Context,
	req *csi.NodeUnstageVolumeRequest,
) (*csi.NodeUnstageVolumeResponse, error) {
	d := s.driver
	if req.GetVolumeId() == "" {
		return nil, invalid("volume_id is missing")
	}
	if err := checkPath("staging_target_path", req.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	release, err := d.locks.tryLock(lockVolume(req.GetVolumeId()))
	if err != nil {
		return nil, err
	}
	defer release()
	v, ok, err := d.store.volume(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, noVolume(req.GetVolumeId())
	}
	if err := d.unstage(ctx, v, req.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

func (d *Driver) unstage(ctx context.Context, v volume, path string) error {
	a := d.store.attachment(v.ID)
	if a.Stage == nil || a.Stage.Path != path {
		return d.checkUnmounted(ctx, v.ID, path)
	}
	for target := range a.Targets {
		info, err := d.mounts.Look(ctx, target)
		if err != nil {
			return err
		}
		if info.Mounted {
			return precondition("volume %s is still published at %s", v.ID, target)
		}
		delete(a.Targets, target)
	}
	if a.Frozen { // the kernel would keep the device of a frozen file system without a mount
		if err := d.thawStaged(ctx, v, a); err != nil {
			return err
		}
		a.Frozen = false
	}
	if a.Stage.Block {
		if err := detachLoops(d.store.dataPath(v.ID, v.Type)); err != nil {
			return err
		}
	} else if err := d.mounts.Unmount(ctx, path); err != nil {
		return err
	}
	a.Stage = nil
	return d.store.endUse(a)
}

// checkUnmounted is for requests to undo what was never recorded: it returns nil if nothing is
// mounted at path, and never unmounts another program's mount.
func (d *Driver) checkUnmounted(ctx context.Context, id, path string) error {
	info, err := d.mounts.Look(ctx, path)
	if err != nil {
		return err
	}
	if info.Mounted {
		return precondition("what is mounted at %s is not volume %s", path, id)
	}
	return nil
}
