// benchdriver is a small real CSI node driver for measuring managers. It
// serves Identity and Node over a unix socket, the kubelet's plugin
// registration API over another, and counters over a third.
//
// noop: NodePublish makes the target directory, nothing is mounted.
// bind: NodeStage binds a backing directory on the staging path with
// mount(2), NodePublish binds staging on target; the reverse is
// umount2(2)+rmdir(2).
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/csi-volmgr/csi-volmgr/hack/bench/internal/benchdef"
)

var (
	name       = flag.String("name", benchdef.DriverName, "driver name")
	mode       = flag.String("mode", "noop", "noop or bind")
	sock       = flag.String("socket", "", "CSI socket")
	regDir     = flag.String("registration-dir", "", "directory for the plugin registration socket (empty: none)")
	ctl        = flag.String("control-socket", "", "control socket: HTTP GET /stats, /reset")
	backing    = flag.String("backing-dir", "", "bind mode: where the volumes' directories are")
	latency    = flag.Duration("latency", 0, "delay of each volume call (stage, publish, unpublish, unstage, stats, expand)")
	latencyAll = flag.Bool("latency-all", false, "delay NodeGetCapabilities, NodeGetInfo and Identity calls too")
	stage      = flag.Bool("stage", true, "STAGE_UNSTAGE_VOLUME")
	stats      = flag.Bool("stats", true, "GET_VOLUME_STATS")
	expand     = flag.Bool("expand", true, "EXPAND_VOLUME")
	nodeID     = flag.String("node-id", "bench-node", "node ID")
	maxVols    = flag.Int64("max-volumes", 0, "NodeGetInfo max_volumes_per_node")
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

type registration struct {
	registerapi.UnimplementedRegistrationServer
	d *driver
}

func (r registration) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{Type: registerapi.CSIPlugin, Name: *name, Endpoint: *sock, SupportedVersions: []string{"1.0.0"}}, nil
}

func (r registration) NotifyRegistrationStatus(_ context.Context, s *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	if !s.PluginRegistered {
		log.Printf("registration failed: %s", s.Error)
	}
	r.d.count("registered")
	return &registerapi.RegistrationStatusResponse{}, nil
}

type countListener struct {
	net.Listener
	n *atomic.Int64
}

func (l countListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.n.Add(1)
	}
	return c, err
}

func listen(p string) net.Listener {
	_ = os.Remove(p)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("unix", p)
	if err != nil {
		log.Fatal(err)
	}
	return l
}

func main() {
	flag.Parse()
	if *sock == "" || (*mode != "noop" && *mode != "bind") {
		log.Fatal("need --socket and --mode=noop|bind")
	}
	if *mode == "bind" {
		if *backing == "" {
			log.Fatal("bind mode needs --backing-dir")
		}
		if err := os.MkdirAll(*backing, 0o755); err != nil {
			log.Fatal(err)
		}
	}
	d := &driver{calls: map[string]int64{}, log: map[string]*benchdef.VolumeLog{}, staged: map[string]string{}, pub: map[string]map[string]string{}}
	s := grpc.NewServer()
	csi.RegisterIdentityServer(s, d)
	csi.RegisterNodeServer(s, d)
	l := listen(*sock)
	go func() { log.Fatal(s.Serve(countListener{l, &d.conns})) }()

	if *ctl != "" {
		mux := http.NewServeMux()
		mux.HandleFunc("/stats", func(w http.ResponseWriter, r *http.Request) {
			sn := benchdef.TakeSnap()
			_, peak := benchdef.RSS()
			d.mu.Lock()
			o := benchdef.DriverStats{Calls: map[string]int64{}, Conns: d.conns.Load(), CPU: sn.User + sn.Sys, RSS: peak, Staged: len(d.staged), Publshed: len(d.pub)}
			for k, v := range d.calls {
				o.Calls[k] = v
			}
			if r.URL.Query().Get("timeline") != "" {
				o.Timeline = map[string]benchdef.VolumeLog{}
				for k, v := range d.log {
					o.Timeline[k] = *v
				}
			}
			d.mu.Unlock()
			_ = json.NewEncoder(w).Encode(o)
		})
		mux.HandleFunc("/reset", func(w http.ResponseWriter, _ *http.Request) {
			d.mu.Lock()
			d.calls, d.log = map[string]int64{}, map[string]*benchdef.VolumeLog{}
			d.mu.Unlock()
			d.conns.Store(0)
			fmt.Fprintln(w, "{}")
		})
		cl := listen(*ctl)
		go func() { log.Fatal(http.Serve(cl, mux)) }()
	}

	var regSock string
	if *regDir != "" {
		regSock = filepath.Join(*regDir, *name+"-reg.sock")
		rs := grpc.NewServer()
		registerapi.RegisterRegistrationServer(rs, registration{d: d})
		rl := listen(regSock)
		go func() { log.Fatal(rs.Serve(rl)) }()
	}

	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
	<-c
	if regSock != "" {
		_ = os.Remove(regSock)
	}
	_ = os.Remove(*sock)
}
