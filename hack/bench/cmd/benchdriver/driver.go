package main

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/csi-volmgr/csi-volmgr/hack/bench/internal/benchdef"
)

type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	conns  atomic.Int64
	mu     sync.Mutex
	calls  map[string]int64
	log    map[string]*benchdef.VolumeLog
	staged map[string]string            // volume -> staging path
	pub    map[string]map[string]string // volume -> target -> staging
}

func (d *driver) count(m string) {
	d.mu.Lock()
	d.calls[m]++
	d.mu.Unlock()
}

func (d *driver) vol(id string) *benchdef.VolumeLog {
	l := d.log[id]
	if l == nil {
		l = &benchdef.VolumeLog{}
		d.log[id] = l
	}
	return l
}

func (d *driver) mark(id string, f func(*benchdef.VolumeLog, int64)) {
	now := time.Now().UnixNano()
	d.mu.Lock()
	f(d.vol(id), now)
	d.mu.Unlock()
}

func nap() {
	if *latency > 0 {
		time.Sleep(*latency)
	}
}

func napAll() {
	if *latencyAll {
		nap()
	}
}

func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	d.count("GetPluginInfo")
	napAll()
	return &csi.GetPluginInfoResponse{Name: *name, VendorVersion: "1"}, nil
}

func (d *driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	d.count("GetPluginCapabilities")
	napAll()
	return &csi.GetPluginCapabilitiesResponse{}, nil
}

func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	d.count("Probe")
	napAll()
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	d.count("NodeGetInfo")
	napAll()
	return &csi.NodeGetInfoResponse{NodeId: *nodeID, MaxVolumesPerNode: *maxVols}, nil
}

func (d *driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	d.count("NodeGetCapabilities")
	napAll()
	r := &csi.NodeGetCapabilitiesResponse{}
	add := func(on bool, t csi.NodeServiceCapability_RPC_Type) {
		if on {
			r.Capabilities = append(r.Capabilities, &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: t}}})
		}
	}
	add(*stage, csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
	add(*stats, csi.NodeServiceCapability_RPC_GET_VOLUME_STATS)
	add(*expand, csi.NodeServiceCapability_RPC_EXPAND_VOLUME)
	return r, nil
}

func mkdir(p string) error {
	if err := os.Mkdir(p, 0o750); err != nil && !os.IsExist(err) {
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}

func bind(src, dst string) error {
	if err := syscall.Mount(src, dst, "", syscall.MS_BIND, ""); err != nil {
		return status.Errorf(codes.Internal, "bind %s on %s: %v", src, dst, err)
	}
	return nil
}

func umount(p string) error {
	if err := syscall.Unmount(p, 0); err != nil && err != syscall.EINVAL && err != syscall.ENOENT {
		return status.Errorf(codes.Internal, "umount %s: %v", p, err)
	}
	return nil
}

func (d *driver) NodeStageVolume(_ context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	id, p := r.GetVolumeId(), r.GetStagingTargetPath()
	if id == "" || p == "" || r.GetVolumeCapability() == nil {
		return nil, status.Error(codes.InvalidArgument, "missing field")
	}
	d.count("NodeStageVolume")
	d.mark(id, func(l *benchdef.VolumeLog, n int64) {
		if l.StageStart == 0 {
			l.StageStart = n
		}
	})
	nap()
	d.mu.Lock()
	_, done := d.staged[id]
	d.mu.Unlock()
	if !done {
		if *mode == "bind" {
			b := filepath.Join(*backing, id)
			if err := mkdir(b); err != nil {
				return nil, err
			}
			if err := bind(b, p); err != nil {
				return nil, err
			}
		}
		d.mu.Lock()
		d.staged[id] = p
		d.mu.Unlock()
	}
	d.mark(id, func(l *benchdef.VolumeLog, n int64) { l.StageEnd = n })
	return &csi.NodeStageVolumeResponse{}, nil
}

func (d *driver) NodePublishVolume(_ context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	id, t := r.GetVolumeId(), r.GetTargetPath()
	if id == "" || t == "" || r.GetVolumeCapability() == nil {
		return nil, status.Error(codes.InvalidArgument, "missing field")
	}
	d.count("NodePublishVolume")
	d.mark(id, func(l *benchdef.VolumeLog, n int64) { l.PubStart = n })
	nap()
	d.mu.Lock()
	_, done := d.pub[id][t]
	d.mu.Unlock()
	if !done {
		if err := mkdir(t); err != nil {
			return nil, err
		}
		if *mode == "bind" {
			src := r.GetStagingTargetPath()
			if src == "" {
				src = filepath.Join(*backing, id)
				if err := mkdir(src); err != nil {
					return nil, err
				}
			}
			if err := bind(src, t); err != nil {
				return nil, err
			}
		}
		d.mu.Lock()
		if d.pub[id] == nil {
			d.pub[id] = map[string]string{}
		}
		d.pub[id][t] = r.GetStagingTargetPath()
		d.mu.Unlock()
	}
	d.mark(id, func(l *benchdef.VolumeLog, n int64) { l.PubEnd = n })
	return &csi.NodePublishVolumeResponse{}, nil
}

func (d *driver) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	id, t := r.GetVolumeId(), r.GetTargetPath()
	if id == "" || t == "" {
		return nil, status.Error(codes.InvalidArgument, "missing field")
	}
	d.count("NodeUnpublishVolume")
	d.mark(id, func(l *benchdef.VolumeLog, n int64) { l.UnpubStart = n })
	nap()
	if *mode == "bind" {
		if err := umount(t); err != nil {
			return nil, err
		}
	}
	if err := os.Remove(t); err != nil && !os.IsNotExist(err) {
		return nil, status.Error(codes.Internal, err.Error())
	}
	d.mu.Lock()
	delete(d.pub[id], t)
	if len(d.pub[id]) == 0 {
		delete(d.pub, id)
	}
	d.mu.Unlock()
	d.mark(id, func(l *benchdef.VolumeLog, n int64) { l.UnpubEnd = n })
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

func (d *driver) NodeUnstageVolume(_ context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	id, p := r.GetVolumeId(), r.GetStagingTargetPath()
	if id == "" || p == "" {
		return nil, status.Error(codes.InvalidArgument, "missing field")
	}
	d.count("NodeUnstageVolume")
	d.mark(id, func(l *benchdef.VolumeLog, n int64) { l.UnstageStart = n })
	nap()
	if *mode == "bind" {
		if err := umount(p); err != nil {
			return nil, err
		}
	}
	d.mu.Lock()
	delete(d.staged, id)
	d.mu.Unlock()
	d.mark(id, func(l *benchdef.VolumeLog, n int64) { l.UnstageEnd = n })
	return &csi.NodeUnstageVolumeResponse{}, nil
}

func (d *driver) NodeGetVolumeStats(_ context.Context, r *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	d.count("NodeGetVolumeStats")
	nap()
	var s syscall.Statfs_t
	if err := syscall.Statfs(r.GetVolumePath(), &s); err != nil {
		return nil, status.Error(codes.NotFound, err.Error())
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: int64(s.Blocks) * s.Bsize, Available: int64(s.Bavail) * s.Bsize, Used: int64(s.Blocks-s.Bfree) * s.Bsize},
		{Unit: csi.VolumeUsage_INODES, Total: int64(s.Files), Available: int64(s.Ffree), Used: int64(s.Files - s.Ffree)},
	}}, nil
}

func (d *driver) NodeExpandVolume(_ context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	d.count("NodeExpandVolume")
	nap()
	return &csi.NodeExpandVolumeResponse{CapacityBytes: r.GetCapacityRange().GetRequiredBytes()}, nil
}
