package wire

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/csi-volmgr/csi-volmgr/internal/localdriver"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/stats"
	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// ableDriver is a driver with capabilities and nothing else.
type ableDriver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	can []csi.NodeServiceCapability_RPC_Type
}

func (*ableDriver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: localdriver.DefaultName, VendorVersion: "1"}, nil
}

func (*ableDriver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{}, nil
}

func (*ableDriver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

func (*ableDriver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: "n"}, nil
}

func (d *ableDriver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	r := &csi.NodeGetCapabilitiesResponse{}
	for _, t := range d.can {
		r.Capabilities = append(r.Capabilities, &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: t}}})
	}
	return r, nil
}

// watchedOf counts the volumes that a node with one volume watches without a reader, if the volume's driver has these
// capabilities.
func watchedOf(t *testing.T, n *Node, can ...csi.NodeServiceCapability_RPC_Type) (volumes int) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "csi.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	d := &ableDriver{can: can}
	csi.RegisterIdentityServer(s, d)
	csi.RegisterNodeServer(s, d)
	go s.Serve(l)
	defer s.Stop()
	c, err := csiclient.Dial(t.Context(), csiclient.Config{Name: localdriver.DefaultName, Endpoint: socket, Root: n.cfg.Root, OnChange: func(csiclient.Info, error) {}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	asker := newAsker(n.builtins, n.manager, n.Drivers, n.controller, n.mounts)
	asker.Controller = silent{} // the local driver's judges every claim
	asker.Drivers = func() map[state.DriverName]*csiclient.Driver {
		return map[state.DriverName]*csiclient.Driver{localdriver.DefaultName: c}
	}
	asker.Subjects(func(s stats.Subject) bool {
		if s.Watched {
			volumes++
		}
		return true
	})
	return volumes
}

// silent is the Controller service of drivers that cannot report the health of volumes.
type silent struct{}

func (silent) Monitored() map[state.VolumeID]controller.Monitored { return nil }

func (silent) Health(string, state.VolumeID) (func(context.Context) ([]csiclient.Condition, error), bool) {
	return nil, false
}

// TestOfDriversThatJudgeVolumesAreWatched: without a reader, the node asks drivers that report a volume's health, and
// not drivers that only report its usage.
func TestOfDriversThatJudgeVolumesAreWatched(t *testing.T) {
	c := dirs(t)
	c.LocalDriver = true
	n, _ := start(t, c)
	apply(t, n, ephemeralPod)
	if err := n.Manager().WaitForAttachAndMount(within(t), "web-uid"); err != nil {
		t.Fatal(err)
	}
	const figures, condition = csi.NodeServiceCapability_RPC_GET_VOLUME_STATS, csi.NodeServiceCapability_RPC_Type(4) // VOLUME_CONDITION, which CSI 1.13 no longer has
	if got := watchedOf(t, n, figures); got != 0 {
		t.Errorf("%d volumes of a driver that gives figures are watched", got)
	}
	for _, can := range [][]csi.NodeServiceCapability_RPC_Type{{csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH}, {figures, condition}} {
		if got := watchedOf(t, n, can...); got != 1 {
			t.Errorf("%d volumes of a driver with %v are watched, want 1", got, can)
		}
	}
}
