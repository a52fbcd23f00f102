//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// array is storage that nodes share, and its strict driver. external-attacher attaches a
// volume to one node at a time, and the driver notes every breach of its rules. Each
// attachment has a publish context of its own, as where it names a device. Its volumes
// are directories. It can forget what is staged on a node, as when the node loses its
// power.
type array struct {
	t    *testing.T
	name string
	dir  string

	mu        sync.Mutex
	attached  map[string]string // volume -> node
	contexts  map[string]string // volume -> publish context of its attachment
	ports     int               // attachments so far
	staged    map[string]string // volume -> node
	published map[string]*csi.NodePublishVolumeRequest
	stages    int
	breaches  []string
}

// newArray makes the storage, its CSIDriver object and its class, and starts the attacher
// if the object requires one. The test fails for every breach.
func newArray(t *testing.T, name string, object *storagev1.CSIDriverSpec) *array {
	t.Helper()
	a := &array{
		t: t, name: name, dir: control.path("array-" + name),
		attached: map[string]string{}, contexts: map[string]string{}, staged: map[string]string{},
		published: map[string]*csi.NodePublishVolumeRequest{},
	}
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := control.client.StorageV1().StorageClasses().Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: name,
	}, metav1.CreateOptions{})
	must(t, err)
	if object != nil {
		_, err := control.client.StorageV1().CSIDrivers().Create(t.Context(), &storagev1.CSIDriver{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: *object,
		}, metav1.CreateOptions{})
		must(t, err)
	}
	t.Cleanup(func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, b := range a.breaches {
			t.Error(b)
		}
		if len(a.staged) > 0 {
			t.Errorf("left staged: %v", a.staged)
		}
	})
	if object != nil && *object.AttachRequired {
		a.serveController()
	}
	return a
}

// serveController runs the driver's Controller service, and external-attacher, until the
// test ends.
func (a *array) serveController() {
	a.t.Helper()
	socket := filepath.Join(a.dir, "csi.sock")
	l, err := net.Listen("unix", socket)
	must(a.t, err)
	s, d := grpc.NewServer(), &desk{a: a}
	csi.RegisterIdentityServer(s, d)
	csi.RegisterControllerServer(s, d)
	go func() { _ = s.Serve(l) }()
	a.t.Cleanup(s.Stop)
	startSidecar(a.t, a.dir, "csi-attacher", nil, "--csi-address="+socket)
}

// tell makes the driver's CSIDriver object, or replaces its spec.
func (a *array) tell(spec storagev1.CSIDriverSpec) {
	a.t.Helper()
	ctx, drivers := a.t.Context(), control.client.StorageV1().CSIDrivers()
	old, err := drivers.Get(ctx, a.name, metav1.GetOptions{})
	if err != nil {
		_, err = drivers.Create(ctx, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: a.name}, Spec: spec}, metav1.CreateOptions{})
	} else {
		old.Spec = spec
		_, err = drivers.Update(ctx, old, metav1.UpdateOptions{})
	}
	if err != nil {
		a.t.Fatal(err)
	}
}

func (a *array) breach(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	a.breaches = append(a.breaches, text)
	return status.Error(codes.FailedPrecondition, text)
}

// desk is the array's Controller service for external-attacher.
type desk struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	a *array
}

func (d *desk) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.a.name, VendorVersion: "1"}, nil
}

func (d *desk) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{{Type: &csi.PluginCapability_Service_{
		Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE},
	}}}}, nil
}

func (d *desk) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

func (d *desk) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	return &csi.ControllerGetCapabilitiesResponse{Capabilities: []*csi.ControllerServiceCapability{{Type: &csi.ControllerServiceCapability_Rpc{
		Rpc: &csi.ControllerServiceCapability_RPC{Type: csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME},
	}}}}, nil
}

func (d *desk) ControllerPublishVolume(_ context.Context, r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	d.a.mu.Lock()
	defer d.a.mu.Unlock()
	volume, node := r.GetVolumeId(), r.GetNodeId()
	if at := d.a.attached[volume]; at != "" && at != node {
		return nil, d.a.breach("%s is to be attached to %s while it is to %s", volume, node, at)
	}
	if d.a.attached[volume] == "" {
		d.a.ports++
		d.a.attached[volume], d.a.contexts[volume] = node, fmt.Sprintf("%s/%d", node, d.a.ports)
	}
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{"port": d.a.contexts[volume]}}, nil
}

func (d *desk) ControllerUnpublishVolume(_ context.Context, r *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	d.a.detach(r.GetVolumeId(), r.GetNodeId())
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

func (a *array) detach(volume, node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.staged[volume] == node {
		_ = a.breach("%s is detached from %s while it is staged there", volume, node)
	}
	if a.attached[volume] == node {
		delete(a.attached, volume)
		delete(a.contexts, volume)
	}
}

// lose forgets what is staged and published on the node, as when the node loses its power.
func (a *array) lose(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.staged, func(_, at string) bool { return at == node })
	maps.DeleteFunc(a.published, func(target string, _ *csi.NodePublishVolumeRequest) bool {
		return strings.HasPrefix(target, place(node)+"/")
	})
}

// publish returns the last request to publish a volume for a pod, or nil.
func (a *array) publish(pod string) *csi.NodePublishVolumeRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.published[pod]
}

// stagedOn returns the node on which the volume is staged, or "".
func (a *array) stagedOn(volume string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.staged[volume]
}

// port is the array's driver on one node.
type port struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	registerapi.UnimplementedRegistrationServer
	a        *array
	node     string
	endpoint string
}

// serve runs the driver on the node until the test ends, and waits until its CSINode has
// the driver.
func (a *array) serve(n *node) {
	n.t.Helper()
	p := &port{a: a, node: n.name, endpoint: filepath.Join(n.dir, "root", "plugins", a.name, "csi.sock")}
	if err := os.MkdirAll(filepath.Dir(p.endpoint), 0o755); err != nil {
		n.t.Fatal(err)
	}
	for path, register := range map[string]func(*grpc.Server){
		p.endpoint: func(s *grpc.Server) {
			csi.RegisterIdentityServer(s, p)
			csi.RegisterNodeServer(s, p)
			csi.RegisterControllerServer(s, everything{})
		},
		filepath.Join(n.dir, "root", "plugins_registry", a.name+"-reg.sock"): func(s *grpc.Server) { registerapi.RegisterRegistrationServer(s, p) },
	} {
		l, err := net.Listen("unix", path)
		if err != nil {
			n.t.Fatal(err)
		}
		s := grpc.NewServer(grpc.UnaryInterceptor(p.nodeOnly))
		register(s)
		go func() { _ = s.Serve(l) }()
		n.t.Cleanup(s.Stop)
	}
	n.hasDriver(a.name)
}

// nodeOnly refuses every call of the Controller service from the node, even the one that
// asks for its capabilities: the cluster's sidecars call it, at their own socket.
func (p *port) nodeOnly(ctx context.Context, r any, call *grpc.UnaryServerInfo, serve grpc.UnaryHandler) (any, error) {
	if strings.Contains(call.FullMethod, "Controller/") {
		p.a.mu.Lock()
		defer p.a.mu.Unlock()
		return nil, p.a.breach("%s is called by node %s", call.FullMethod, p.node)
	}
	return serve(ctx, r)
}

// everything is a Controller service that claims all capabilities.
type everything struct {
	csi.UnimplementedControllerServer
}

func (everything) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	resp := &csi.ControllerGetCapabilitiesResponse{}
	for rpc := range csi.ControllerServiceCapability_RPC_Type_name {
		resp.Capabilities = append(resp.Capabilities, &csi.ControllerServiceCapability{Type: &csi.ControllerServiceCapability_Rpc{
			Rpc: &csi.ControllerServiceCapability_RPC{Type: csi.ControllerServiceCapability_RPC_Type(rpc)},
		}})
	}
	return resp, nil
}

// hasDriver waits until the CSINode has the driver.
func (n *node) hasDriver(name string) {
	n.t.Helper()
	n.eventually("driver "+name+" is in the CSINode", func() bool {
		o, err := control.client.StorageV1().CSINodes().Get(n.t.Context(), n.name, metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(o.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == name })
	})
}

func (p *port) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{Type: registerapi.CSIPlugin, Name: p.a.name, Endpoint: p.endpoint, SupportedVersions: []string{"1.0.0"}}, nil
}

func (p *port) NotifyRegistrationStatus(context.Context, *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	return &registerapi.RegistrationStatusResponse{}, nil
}

func (p *port) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: p.a.name, VendorVersion: "1"}, nil
}

func (p *port) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{{Type: &csi.PluginCapability_Service_{
		Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE},
	}}}}, nil
}

func (p *port) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

func (p *port) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: p.node}, nil
}

func (p *port) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{Capabilities: []*csi.NodeServiceCapability{{Type: &csi.NodeServiceCapability_Rpc{
		Rpc: &csi.NodeServiceCapability_RPC{Type: csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME},
	}}}}, nil
}

func (p *port) NodeStageVolume(_ context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	volume, attached := r.GetVolumeId(), r.GetPublishContext()["port"]
	if at := p.a.staged[volume]; at != "" && at != p.node {
		return nil, p.a.breach("%s is to be staged on %s while it is on %s", volume, p.node, at)
	}
	if at := p.a.attached[volume]; attached != "" && (at != p.node || attached != p.a.contexts[volume]) {
		return nil, p.a.breach("%s is to be staged on %s, attached as %q by its request, and in truth to %q as %q", volume, p.node, attached, at,
			p.a.contexts[volume])
	}
	if p.a.staged[volume] == "" {
		if err := bind(filepath.Join(p.a.dir, volume), r.GetStagingTargetPath()); err != nil {
			return nil, err
		}
	}
	p.a.staged[volume] = p.node
	p.a.stages++
	return &csi.NodeStageVolumeResponse{}, nil
}

func (p *port) NodeUnstageVolume(_ context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	if err := unbind(r.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	if p.a.staged[r.GetVolumeId()] == p.node {
		delete(p.a.staged, r.GetVolumeId())
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

func (p *port) NodePublishVolume(_ context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	if p.a.staged[r.GetVolumeId()] != p.node {
		return nil, p.a.breach("%s is to be published on %s, where it is not staged", r.GetVolumeId(), p.node)
	}
	// A repeated request, such as one with new tokens, finds the volume mounted.
	if _, told := p.a.published[r.GetTargetPath()]; !told {
		if err := bind(r.GetStagingTargetPath(), r.GetTargetPath()); err != nil {
			return nil, err
		}
	}
	p.a.published[r.GetTargetPath()] = r
	p.a.published[r.GetVolumeContext()["csi.storage.k8s.io/pod.name"]] = r
	p.a.published[r.GetVolumeId()] = r
	return &csi.NodePublishVolumeResponse{}, nil
}

func (p *port) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	p.a.mu.Lock()
	defer p.a.mu.Unlock()
	delete(p.a.published, r.GetTargetPath())
	if err := unbind(r.GetTargetPath()); err != nil {
		return nil, err
	}
	return &csi.NodeUnpublishVolumeResponse{}, os.RemoveAll(r.GetTargetPath())
}

func bind(source, target string) error {
	for _, dir := range []string{source, target} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return err
		}
	}
	return unix.Mount(source, target, "", unix.MS_BIND, "")
}

// unbind unmounts target if something is mounted there.
func unbind(target string) error {
	if err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW); err != nil && err != unix.EINVAL && err != unix.ENOENT {
		return err
	}
	return nil
}
