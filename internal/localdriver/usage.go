package localdriver

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

// NodeGetVolumeStats reports how full a volume is (CSI 1.13 NodeGetVolumeStats). A directory has no
// limit of its own, so the figures are those of its file system. For a raw block volume only the
// size is known.
func (s *nodeServer) NodeGetVolumeStats(ctx context.Context,
	req *csi.NodeGetVolumeStatsRequest,
) (*csi.NodeGetVolumeStatsResponse, error) {
	if req.GetVolumeId() == "" || req.GetVolumePath() == "" {
		return nil, invalid("volume_id or volume_path is missing")
	}
	v, block, err := s.driver.inUseAt(ctx, req.GetVolumeId(), req.GetVolumePath())
	if err != nil {
		return nil, err
	}
	if block {
		return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
			{Unit: csi.VolumeUsage_BYTES, Total: v.CapacityBytes},
		}}, nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(req.GetVolumePath(), &st); err != nil {
		return nil, fmt.Errorf("statfs %s: %w", req.GetVolumePath(), err)
	}
	unit := int64(st.Frsize)
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{
			Unit: csi.VolumeUsage_BYTES, Total: int64(st.Blocks) * unit,
			Available: int64(st.Bavail) * unit, Used: int64(st.Blocks-st.Bfree) * unit,
		},
		{
			Unit: csi.VolumeUsage_INODES, Total: int64(st.Files),
			Available: int64(st.Ffree), Used: int64(st.Files - st.Ffree),
		},
	}}, nil
}

// inUseAt returns the volume that is staged or published at path, and whether it is there as a
// device. It answers NOT_FOUND if the volume is not there.
func (d *Driver) inUseAt(ctx context.Context, id, path string) (v volume, block bool, err error) {
	if v, err = d.mustVolume(id); err != nil {
		return volume{}, false, err
	}
	a := d.store.attachment(id)
	if a.Stage != nil && a.Stage.Path == path {
		there, err := d.isStaged(ctx, v, *a.Stage)
		if err == nil && !there {
			err = notAt(id, path)
		}
		return v, a.Stage.Block, err
	}
	p, known := a.Targets[path]
	if !known {
		return volume{}, false, notAt(id, path)
	}
	info, err := d.mounts.Look(ctx, path)
	if err == nil && !info.Mounted {
		err = notAt(id, path)
	}
	return v, p.Block, err
}

func notAt(id, path string) error {
	return refuse(codes.NotFound, "volume %s is neither staged nor published at %s", id, path)
}

// statfsBytes returns the free space for users other than root and the size of the file system at
// path, in bytes.
func statfsBytes(path string) (free, total int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, 0, fmt.Errorf("statfs %s: %w", path, err)
	}
	return int64(st.Bavail) * int64(st.Frsize), int64(st.Blocks) * int64(st.Frsize), nil
}

// NodeExpandVolume enlarges the device and file system of a volume in use to the size of its image
// (CSI 1.13 NodeExpandVolume). FAILED_PRECONDITION means that the file system grows at its next
// stage.
func (s *nodeServer) NodeExpandVolume(ctx context.Context,
	req *csi.NodeExpandVolumeRequest,
) (*csi.NodeExpandVolumeResponse, error) {
	id, path := req.GetVolumeId(), req.GetVolumePath()
	if id == "" || path == "" {
		return nil, invalid("volume_id or volume_path is missing")
	}
	if r := req.GetCapacityRange(); r.GetRequiredBytes() < 0 || r.GetLimitBytes() < 0 {
		return nil, invalid("capacity_range is negative")
	}
	d := s.driver
	release, err := d.locks.tryLock(lockVolume(id))
	if err != nil {
		return nil, err
	}
	defer release()
	v, block, err := d.inUseAt(ctx, id, path)
	if err != nil {
		return nil, err
	}
	if need := req.GetCapacityRange().GetRequiredBytes(); need > v.CapacityBytes {
		return nil, refuse(codes.OutOfRange,
			"%d bytes are requested, but volume %s has %d: call ControllerExpandVolume first", need, id, v.CapacityBytes)
	}
	if v.Type == typeImage {
		if err := d.growInUse(ctx, v, path, block); err != nil {
			return nil, err
		}
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: v.CapacityBytes}, nil
}

// growInUse grows the loop devices of an image and the file system mounted at path.
func (d *Driver) growInUse(ctx context.Context, v volume, path string, block bool) error {
	if err := d.growData(v); err != nil {
		return err
	}
	devs, err := findLoops(d.store.dataPath(v.ID, v.Type))
	if err != nil {
		return err
	}
	defer closeLoops(devs)
	for _, dev := range devs {
		if err := dev.refresh(); err != nil {
			return err
		}
	}
	if block || v.FSBytes >= v.CapacityBytes {
		return nil
	}
	// The requested path may be a read-only bind mount of the staged file system. If that is no longer
	// mounted, its path leads to a file system of the node.
	a := d.store.attachment(v.ID)
	staged, err := d.stagedFS(ctx, a)
	if err != nil {
		return err
	}
	if staged {
		path = a.Stage.Path
	}
	_, err = d.growStaged(ctx, v, path)
	return err
}
