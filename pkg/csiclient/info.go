package csiclient

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Errors of Dial and of Config.OnChange, beside what the calls themselves give.
var (
	// ErrName: the process at the endpoint calls itself by another name than
	// the one registered. It will not get better by itself.
	ErrName = errors.New("driver name is not the registered one")
	// ErrNotReady: Probe answered that the driver is still starting.
	ErrNotReady = errors.New("driver says that it is not ready")
)

// Info is what a driver can do, as it said itself: plain data, read once a connection.
type Info struct {
	Name     state.DriverName
	Endpoint string
	// Version is the vendor's, opaque.
	Version string
	// NodeID is NodeGetInfo's; "" where the driver has none and needs none.
	NodeID string
	// Topology is NodeGetInfo's accessible_topology; nil means unconstrained.
	Topology map[string]string
	// MaxVolumes is how many volumes it serves on this node; 0 means no limit known.
	MaxVolumes int64
	// Capabilities are the node capabilities by their CSI names, sorted; one
	// that this version of CSI has no name for is its number.
	Capabilities []string

	Stage                 bool // STAGE_UNSTAGE_VOLUME
	Expand                bool // EXPAND_VOLUME of the Node service
	Stats                 bool // GET_VOLUME_STATS
	MountGroup            bool // VOLUME_MOUNT_GROUP
	VolumeHealth          bool // GET_VOLUME_HEALTH
	StorageHealth         bool // GET_STORAGE_HEALTH
	OldCondition          bool // VOLUME_CONDITION, which CSI 1.13 removed: Stats has the condition
	SingleNodeMultiWriter bool // SINGLE_NODE_MULTI_WRITER
	OnlineExpand          bool // plugin capability VolumeExpansion ONLINE
	OfflineExpand         bool // plugin capability VolumeExpansion OFFLINE
	// ControllerService: the endpoint has a Controller service.
	ControllerService bool
	// Attach: that service has PUBLISH_UNPUBLISH_VOLUME.
	Attach bool
	// Topological: VOLUME_ACCESSIBILITY_CONSTRAINTS.
	Topological bool
	// SnapshotMetadata: SNAPSHOT_METADATA_SERVICE.
	SnapshotMetadata bool
}

// volumeCondition is the number of the capability that CSI had until 1.12.
const volumeCondition csi.NodeServiceCapability_RPC_Type = 4

// readInfo asks the driver behind the connection all that Info holds.
func (d *Driver) readInfo(ctx context.Context) (Info, error) {
	ctx, cancel := context.WithTimeout(ctx, d.deadlines.Info)
	defer cancel()
	ctx = asking(ctx)
	i := Info{Endpoint: d.endpoint}
	steps := []func(context.Context, *Info) error{
		d.readPlugin, d.readPluginCapabilities, d.probe, d.readController, d.readNodeCapabilities, d.readNode,
	}
	for _, step := range steps {
		if err := step(ctx, &i); err != nil {
			return Info{}, err
		}
	}
	return i, nil
}

func (d *Driver) readPlugin(ctx context.Context, i *Info) error {
	r, err := d.identity.GetPluginInfo(ctx, &csi.GetPluginInfoRequest{})
	if err != nil {
		return CallError("GetPluginInfo", err)
	}
	if r.GetName() != string(d.name) {
		return fmt.Errorf("GetPluginInfo: %w: it is %q, registered is %q", ErrName, clipped(r.GetName(), maxString), d.name)
	}
	i.Name, i.Version = d.name, clipped(r.GetVendorVersion(), maxString)
	return nil
}

func (d *Driver) readPluginCapabilities(ctx context.Context, i *Info) error {
	r, err := d.identity.GetPluginCapabilities(ctx, &csi.GetPluginCapabilitiesRequest{})
	if err != nil {
		return CallError("GetPluginCapabilities", err)
	}
	i.AddPlugin(r)
	return nil
}

// AddPlugin adds to i what the answer of GetPluginCapabilities says.
func (i *Info) AddPlugin(answer *csi.GetPluginCapabilitiesResponse) {
	for _, c := range answer.GetCapabilities() {
		switch c.GetService().GetType() {
		case csi.PluginCapability_Service_CONTROLLER_SERVICE:
			i.ControllerService = true
		case csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS:
			i.Topological = true
		case csi.PluginCapability_Service_SNAPSHOT_METADATA_SERVICE:
			i.SnapshotMetadata = true
		}
		switch c.GetVolumeExpansion().GetType() {
		case csi.PluginCapability_VolumeExpansion_ONLINE:
			i.OnlineExpand = true
		case csi.PluginCapability_VolumeExpansion_OFFLINE:
			i.OfflineExpand = true
		}
	}
}

// probe: an answer without ready means ready (CSI 1.13, Probe). A driver that
// lacks the call is taken for ready, as the kubelet never makes it.
func (d *Driver) probe(ctx context.Context, _ *Info) error {
	r, err := d.identity.Probe(ctx, &csi.ProbeRequest{})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return nil
	case err != nil:
		return CallError("Probe", err)
	case r.GetReady() != nil && !r.GetReady().GetValue():
		return fmt.Errorf("call Probe: %w", ErrNotReady)
	}
	return nil
}

// readController: a node plugin may announce a Controller service that it does
// not serve at this endpoint; then it has no abilities.
func (d *Driver) readController(ctx context.Context, i *Info) error {
	if !i.ControllerService || d.nodeOnly {
		return nil
	}
	r, err := csi.NewControllerClient(d.conn).ControllerGetCapabilities(ctx, &csi.ControllerGetCapabilitiesRequest{})
	if status.Code(err) == codes.Unimplemented {
		i.ControllerService = false
		return nil
	}
	if err != nil {
		return CallError("ControllerGetCapabilities", err)
	}
	for _, c := range r.GetCapabilities() {
		if c.GetRpc().GetType() == csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME {
			i.Attach = true
		}
	}
	return nil
}

func (d *Driver) readNodeCapabilities(ctx context.Context, i *Info) error {
	r, err := d.node.NodeGetCapabilities(ctx, &csi.NodeGetCapabilitiesRequest{})
	if err != nil {
		return CallError("NodeGetCapabilities", err)
	}
	for _, c := range r.GetCapabilities() {
		if c.GetRpc() == nil {
			continue
		}
		t := c.GetRpc().GetType()
		i.Capabilities = append(i.Capabilities, t.String())
		switch t {
		case csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME:
			i.Stage = true
		case csi.NodeServiceCapability_RPC_EXPAND_VOLUME:
			i.Expand = true
		case csi.NodeServiceCapability_RPC_GET_VOLUME_STATS:
			i.Stats = true
		case csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP:
			i.MountGroup = true
		case csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER:
			i.SingleNodeMultiWriter = true
		case csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH:
			i.VolumeHealth = true
		case csi.NodeServiceCapability_RPC_GET_STORAGE_HEALTH:
			i.StorageHealth = true
		case volumeCondition:
			i.OldCondition = true
		}
	}
	slices.Sort(i.Capabilities)
	i.Capabilities = slices.Compact(i.Capabilities)
	return nil
}

// readNode: NodeGetInfo is required only of drivers that attach (CSI 1.13,
// NodeGetInfo); the others may not have it.
func (d *Driver) readNode(ctx context.Context, i *Info) error {
	r, err := d.node.NodeGetInfo(ctx, &csi.NodeGetInfoRequest{})
	if status.Code(err) == codes.Unimplemented && !i.Attach {
		return nil
	}
	if err != nil {
		return CallError("NodeGetInfo", err)
	}
	if r.GetNodeId() == "" && i.Attach {
		return errors.New("NodeGetInfo: node_id: empty, but the driver has PUBLISH_UNPUBLISH_VOLUME")
	}
	if err := checkTopology(r.GetAccessibleTopology().GetSegments()); err != nil {
		return fmt.Errorf("NodeGetInfo: accessible_topology: %w", err)
	}
	i.NodeID = r.GetNodeId()
	i.Topology = r.GetAccessibleTopology().GetSegments()
	i.MaxVolumes = max(0, r.GetMaxVolumesPerNode()) // a negative number is invalid and says nothing
	return nil
}

// MaxVolumes asks the driver anew how many volumes it serves on this node
// (NodeGetInfo), 0 where it knows no limit. Info stays as it was read.
func (d *Driver) MaxVolumes(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, d.deadlines.Info)
	defer cancel()
	r, err := d.node.NodeGetInfo(ctx, &csi.NodeGetInfoRequest{})
	if err != nil {
		return 0, CallError("NodeGetInfo", err)
	}
	return max(0, r.GetMaxVolumesPerNode()), nil
}
