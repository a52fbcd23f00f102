// Program driver is a complete CSI driver: each volume is a tmpfs of its own, written
// inline in its pod (`csi: {driver: memory.example.com}`), with the size in its
// attribute "size". It registers itself, so it needs no registrar.
//
//	go run ./examples/driver -root /var/lib/kubelet -node node-1
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/resource"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const driverName = "memory.example.com"

func main() {
	root := flag.String("root", "/var/lib/kubelet", "the root directory of csi-volmgr")
	node := flag.String("node", "node-1", "this node's id for the driver")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *root, *node); err != nil {
		log.Fatal(err)
	}
}

// run serves the driver and its registration, each on a socket, until ctx ends.
func run(ctx context.Context, root, node string) error {
	endpoint := filepath.Join(root, "plugins", driverName, "csi.sock")
	d := &driver{node: node, endpoint: endpoint}
	server, registration := grpc.NewServer(), grpc.NewServer()
	csi.RegisterIdentityServer(server, d)
	csi.RegisterNodeServer(server, d)
	registerapi.RegisterRegistrationServer(registration, d)
	go func() {
		<-ctx.Done()
		registration.GracefulStop() // removes the socket, by which csi-volmgr notices that the driver ends
		server.GracefulStop()
	}()
	ended := make(chan error, 2)
	go func() { ended <- serve(server, endpoint) }()
	go func() {
		ended <- serve(registration, filepath.Join(root, "plugins_registry", driverName+"-reg.sock"))
	}()
	return errors.Join(<-ended, <-ended)
}

// serve listens on a socket, and replaces one that an earlier run left.
func serve(s *grpc.Server, socket string) error {
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		return err
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	return s.Serve(l)
}

type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	registerapi.UnimplementedRegistrationServer
	node, endpoint string
}

func (*driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: driverName, VendorVersion: "1"}, nil
}

func (*driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{}, nil
}

func (*driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.node}, nil
}

// NodeGetCapabilities returns none, so csi-volmgr publishes volumes without staging them.
func (*driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{}, nil
}

// NodePublishVolume mounts a tmpfs at the target. A repeated call must answer OK, and
// must not mount a second layer.
func (*driver) NodePublishVolume(_ context.Context, req *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	target := req.GetTargetPath()
	size, err := resource.ParseQuantity(strings.TrimSpace(req.GetVolumeContext()["size"]))
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "volume attribute size: %q is not a quantity, as 64Mi", req.GetVolumeContext()["size"])
	}
	if mounted(target) {
		return &csi.NodePublishVolumeResponse{}, nil
	}
	if err := os.MkdirAll(target, 0o750); err != nil {
		return nil, err
	}
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
	if req.GetReadonly() {
		flags |= unix.MS_RDONLY
	}
	if err := unix.Mount("tmpfs", target, "tmpfs", flags, "size="+size.AsDec().String()); err != nil {
		return nil, status.Errorf(codes.Internal, "mount tmpfs at %s: %v", target, err)
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// NodeUnpublishVolume also succeeds if nothing is mounted.
func (*driver) NodeUnpublishVolume(_ context.Context, req *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	target := req.GetTargetPath()
	if mounted(target) {
		if err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW); err != nil {
			return nil, status.Errorf(codes.Internal, "unmount %s: %v", target, err)
		}
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// mounted reports whether path is the root of a mount.
func mounted(path string) bool {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, 0, &st)
	return err == nil && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// GetInfo answers csi-volmgr, which has found the registration socket.
func (d *driver) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{
		Type: registerapi.CSIPlugin, Name: driverName, Endpoint: d.endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (*driver) NotifyRegistrationStatus(_ context.Context, s *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	log.Printf("registered: %t %s", s.GetPluginRegistered(), s.GetError())
	return &registerapi.RegistrationStatusResponse{}, nil
}
