package csiclient

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/csi-volmgr/csi-volmgr/internal/host/unixsocket"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// inNamespace marks the child in which the tests run.
const inNamespace = "CSICLIENT_TEST_IN_NAMESPACE"

// TestMain runs the tests in a mount namespace of their own, since some of them mount.
func TestMain(m *testing.M) {
	if os.Getenv(inNamespace) != "" {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			fmt.Fprintln(os.Stderr, "make mounts private:", err)
			os.Exit(1)
		}
		unix.Umask(0o022) // tests check the mode of what is made
		goleak.VerifyTestMain(m)
		return
	}
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "these tests mount: run them as root")
		os.Exit(1)
	}
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	if len(os.TempDir()) > 24 {
		cmd.Env = append(cmd.Env, "TMPDIR=/tmp") // a socket's address holds 107 bytes, and t.TempDir has the test's name
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// patience is how long a test waits for an event before it fails; a test that passes
// never waits that long.
const patience = 2 * time.Minute

const driverName = "fake.example.com"

// fakeDriver is a small strict CSI driver: it remembers what is staged and published,
// refuses what CSI forbids a caller to do, and records every request.
type fakeDriver struct {
	links string // NodePublishVolume leaves a symbolic link to this path
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer
	csi.UnimplementedSnapshotMetadataServer

	name       string
	caps       []csi.NodeServiceCapability_RPC_Type
	controller []csi.ControllerServiceCapability_RPC_Type // nil: no Controller service
	nodeID     string                                     // "": no NodeGetInfo
	expansion  []csi.PluginCapability_VolumeExpansion_Type

	emptyNodeID bool
	topology    *csi.Topology
	health      []*csi.VolumeHealth_VolumeHealthEntry // guarded by mu
	maxVolumes  int64
	ready       *wrapperspb.BoolValue

	mu        sync.Mutex
	requests  []string        // method names, in order
	last      proto.Message   // the last node call that changes something
	staged    map[string]bool // volume_id^path
	published map[string]bool
	wrong     []string
	// fault runs before a call does its work, after runs after it; the call answers with
	// their error.
	fault, after func(ctx context.Context, method string, req any) error

	uid    uint32 // user of its process
	server *grpc.Server
	served chan struct{}
}

func newFake() *fakeDriver {
	return &fakeDriver{
		name:   driverName,
		nodeID: "node-1", maxVolumes: 16, topology: &csi.Topology{Segments: map[string]string{"zone": "z1"}},
		caps: []csi.NodeServiceCapability_RPC_Type{
			csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
			csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		},
		expansion: []csi.PluginCapability_VolumeExpansion_Type{csi.PluginCapability_VolumeExpansion_ONLINE, csi.PluginCapability_VolumeExpansion_OFFLINE},
		staged:    map[string]bool{}, published: map[string]bool{},
	}
}

// serve starts the driver on the socket at path, replacing a socket that exists.
func (f *fakeDriver) serve(t *testing.T, path string) {
	t.Helper()
	_ = os.Remove(path)
	listen := listenUnix
	if f.uid != 0 {
		listen = func(path string) (net.Listener, error) { return listenAs(path, f.uid) }
	}
	l, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	f.server = grpc.NewServer(grpc.UnaryInterceptor(f.record))
	csi.RegisterIdentityServer(f.server, f)
	csi.RegisterNodeServer(f.server, f)
	csi.RegisterSnapshotMetadataServer(f.server, f)
	if f.controller != nil {
		csi.RegisterControllerServer(f.server, f)
	}
	f.served = make(chan struct{})
	go func() {
		defer close(f.served)
		_ = f.server.Serve(l)
	}()
	t.Cleanup(f.die)
}

func listenUnix(path string) (net.Listener, error) {
	if len(path) <= unixsocket.MaxPath {
		return net.Listen("unix", path)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
}

// die ends the driver as kill -9 does: its socket file stays.
func (f *fakeDriver) die() {
	f.server.Stop()
	<-f.served
}

func (f *fakeDriver) record(ctx context.Context, req any, i *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
	method := i.FullMethod[strings.LastIndex(i.FullMethod, "/")+1:]
	f.mu.Lock()
	f.requests = append(f.requests, method)
	if !readsOnly(method) {
		f.last = proto.Clone(req.(proto.Message))
	}
	fault, after := f.fault, f.after
	if p, ok := peer.FromContext(ctx); !ok || p.Addr.Network() != "unix" {
		f.wrong = append(f.wrong, "not a unix socket")
	}
	f.mu.Unlock()
	if fault != nil {
		if err := fault(ctx, method, req); err != nil {
			return nil, err
		}
	}
	r, err := h(ctx, req)
	if after != nil && err == nil {
		if err := after(ctx, method, req); err != nil {
			return nil, err
		}
	}
	return r, err
}

// inject makes every call of one method fail before it does anything.
func (f *fakeDriver) inject(method string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = func(_ context.Context, m string, _ any) error {
		if m == method {
			return err
		}
		return nil
	}
}

// on makes every call of one method run do instead of its own work.
func (f *fakeDriver) on(method string, do func(req any) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = func(_ context.Context, m string, req any) error {
		if m == method {
			return do(req)
		}
		return nil
	}
}

func (f *fakeDriver) seen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.requests)
}

// calls counts the requests of one method.
func (f *fakeDriver) calls(method string) int {
	n := 0
	for _, m := range f.seen() {
		if m == method {
			n++
		}
	}
	return n
}

func (f *fakeDriver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: f.name, VendorVersion: "v1"}, nil
}

func (f *fakeDriver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	r := &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{
		{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS}}},
	}}
	for _, t := range f.expansion {
		r.Capabilities = append(r.Capabilities, &csi.PluginCapability{Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: t}}})
	}
	if f.controller != nil {
		r.Capabilities = append(r.Capabilities, &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE}}})
	}
	return r, nil
}

func (f *fakeDriver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: f.ready}, nil
}

func (f *fakeDriver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	r := &csi.ControllerGetCapabilitiesResponse{}
	for _, c := range f.controller {
		r.Capabilities = append(r.Capabilities, &csi.ControllerServiceCapability{Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: c}}})
	}
	return r, nil
}

func (f *fakeDriver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	r := &csi.NodeGetCapabilitiesResponse{}
	if len(f.caps) > 0 {
		r.Capabilities = append(r.Capabilities, &csi.NodeServiceCapability{}) // one without a kind
	}
	for _, c := range f.caps {
		r.Capabilities = append(r.Capabilities, &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: c}}})
	}
	return r, nil
}

func (f *fakeDriver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	if f.nodeID == "" {
		return nil, status.Error(codes.Unimplemented, "no node info")
	}
	if f.emptyNodeID {
		return &csi.NodeGetInfoResponse{}, nil
	}
	return &csi.NodeGetInfoResponse{NodeId: f.nodeID, MaxVolumesPerNode: f.maxVolumes, AccessibleTopology: f.topology}, nil
}

func (f *fakeDriver) has(c csi.NodeServiceCapability_RPC_Type) bool {
	return slices.Contains(f.caps, c)
}

func (f *fakeDriver) NodeStageVolume(_ context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fi, err := os.Lstat(r.GetStagingTargetPath())
	if err != nil || !fi.IsDir() {
		f.wrong = append(f.wrong, "stage: the staging path is no directory")
		return nil, status.Error(codes.FailedPrecondition, "staging path")
	}
	f.staged[r.GetVolumeId()+"^"+r.GetStagingTargetPath()] = true
	return &csi.NodeStageVolumeResponse{}, nil
}

func (f *fakeDriver) NodeUnstageVolume(_ context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.staged, r.GetVolumeId()+"^"+r.GetStagingTargetPath())
	return &csi.NodeUnstageVolumeResponse{}, nil
}

func (f *fakeDriver) NodePublishVolume(_ context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := r.GetVolumeId() + "^" + r.GetTargetPath()
	if _, err := os.Lstat(r.GetTargetPath()); err == nil && !f.published[key] {
		f.wrong = append(f.wrong, "publish: the target exists")
	}
	if f.has(csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME) && r.GetVolumeContext()["csi.storage.k8s.io/ephemeral"] != "true" &&
		!f.staged[r.GetVolumeId()+"^"+r.GetStagingTargetPath()] {
		return nil, status.Error(codes.FailedPrecondition, "not staged")
	}
	if f.links != "" {
		f.published[key] = true
		return &csi.NodePublishVolumeResponse{}, os.Symlink(f.links, r.GetTargetPath())
	}
	if !f.published[key] {
		if err := place(r.GetTargetPath(), r.GetVolumeCapability().GetBlock() != nil); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
	}
	f.published[key] = true
	return &csi.NodePublishVolumeResponse{}, nil
}

// place creates what a driver creates at a target.
func place(path string, block bool) error {
	if block {
		return os.WriteFile(path, nil, 0o600)
	}
	return os.Mkdir(path, 0o700)
}

func (f *fakeDriver) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.published, r.GetVolumeId()+"^"+r.GetTargetPath())
	if err := os.Remove(r.GetTargetPath()); err != nil && !os.IsNotExist(err) {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

func (f *fakeDriver) NodeExpandVolume(_ context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	return &csi.NodeExpandVolumeResponse{CapacityBytes: r.GetCapacityRange().GetRequiredBytes()}, nil
}

func (f *fakeDriver) NodeGetVolumeStats(context.Context, *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: 100, Used: 40, Available: 60}}}, nil
}

// node is a root directory with a driver that a client is connected to.
type node struct {
	t      *testing.T
	f      *fakeDriver
	layout state.Layout
	socket string
	d      *Driver
	log    *logBuffer
	change chan error // receives what OnChange gets
}

// connect serves f and dials it; change adjusts the configuration.
func connect(t *testing.T, f *fakeDriver, change ...func(*Config)) *node {
	t.Helper()
	n := &node{t: t, f: f, layout: state.Layout{Root: t.TempDir()}, log: &logBuffer{}, change: make(chan error, 100)}
	n.socket = filepath.Join(t.TempDir(), "csi.sock")
	f.serve(t, n.socket)
	c := Config{
		Name: driverName, Endpoint: n.socket, Root: n.layout.Root,
		Logger:   slog.New(slog.NewTextHandler(n.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		OnChange: func(_ Info, err error) { n.change <- err },
	}
	for _, f := range change {
		f(&c)
	}
	d, err := Dial(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	n.d = d
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if len(f.wrong) > 0 {
			t.Errorf("the driver saw: %q", f.wrong)
		}
	})
	return n
}

// news waits for the next call of OnChange.
func (n *node) news() error {
	n.t.Helper()
	select {
	case err := <-n.change:
		return err
	case <-time.After(patience):
		n.t.Fatal("OnChange was told nothing")
		return nil
	}
}

// volume returns a file system volume of the node as the manager has it while it is
// published to pod-1.
func (n *node) volume(mode state.Mode) state.Volume {
	const handle, pv, pod = "vol/../1", "pv-1", "pod-1"
	l := n.layout
	v := state.Volume{
		ID: state.SharedID(driverName, handle),
		Spec: &state.Spec{
			Driver: driverName, Handle: handle, Name: pv, Mode: mode,
			AccessModes: []state.AccessMode{state.ReadWriteOnce},
			StagePath:   l.StagePath(mode, driverName, handle, pv),
		},
		Needs: state.Needs{Stage: true},
	}
	m := state.MountSpec{Pod: state.Pod{UID: pod, Namespace: "default", Name: "web"}, Names: []string{"data"}, Target: l.Target(mode, pod, pv)}
	if mode == state.Block {
		m.DevicePath = l.DevicePath(pod, pv)
	}
	v.Mounts = map[state.PodUID]state.Mount{pod: {Fact: state.Fact{Phase: state.Entering}, MountSpec: m}}
	return v
}

// withPhase returns v with pod-1's mount in another phase.
func withPhase(v state.Volume, p state.Phase) state.Volume {
	m := v.Mounts["pod-1"]
	m.Phase = p
	v.Mounts = map[state.PodUID]state.Mount{"pod-1": m}
	return v
}

// target returns the path at which v is published for pod-1.
func target(v state.Volume) string { return v.Mounts["pod-1"].Target }

// tree lists everything below the root, relative to it.
func (n *node) tree() []string {
	n.t.Helper()
	var found []string
	err := filepath.WalkDir(n.layout.Root, func(path string, _ os.DirEntry, err error) error {
		if rel, _ := filepath.Rel(n.layout.Root, path); rel != "." {
			found = append(found, rel)
		}
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return found
}

type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// readsOnly reports whether a call changes nothing.
func readsOnly(call string) bool {
	for _, verb := range []string{"Get", "List", "NodeGet", "ControllerGet", "Probe", "Validate"} {
		if strings.HasPrefix(call, verb) {
			return true
		}
	}
	return false
}

// publish is d.Publish for tests that need no renewal.
func publish(ctx context.Context, d *Driver, v state.Volume, pod state.PodUID) error {
	_, err := d.Publish(ctx, v, pod)
	return err
}
