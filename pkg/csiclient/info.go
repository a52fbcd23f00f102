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

// Errors of Dial and Config.OnChange, in addition to those of the calls.
var (
	// ErrName means that the driver at the endpoint has another name than the one
	// registered. Retrying does not help.
	ErrName = errors.New("driver name is not the registered one")
	// errNotReady means that Probe answered that the driver is still starting.
	errNotReady = errors.New("driver says that it is not ready")
	// errNoController means that an endpoint that is to serve the Controller service does not.
	errNoController = errors.New("no Controller service is served here")
	// errNoNode means that the endpoint of a driver does not serve the Node service.
	errNoNode = errors.New("no Node service is served here")
)

// Info holds the abilities that a driver reports. They are read once per connection.
type Info struct {
	Name     state.DriverName
	Endpoint string
	// Version is the vendor's version, an opaque string.
	Version string
	// NodeID is NodeGetInfo's node_id; "" if the driver has none and needs none.
	NodeID string
	// Topology is NodeGetInfo's accessible_topology; nil means unconstrained.
	Topology map[string]string
	// MaxVolumes is how many volumes the driver serves on this node; 0 means no known limit.
	MaxVolumes int64
	// Capabilities lists the CSI names of the node capabilities, sorted; a capability
	// that this version of CSI does not know is listed by its number.
	Capabilities []string

	Stage                 bool // STAGE_UNSTAGE_VOLUME
	Expand                bool // EXPAND_VOLUME of the Node service
	Stats                 bool // GET_VOLUME_STATS
	MountGroup            bool // VOLUME_MOUNT_GROUP
	VolumeHealth          bool // GET_VOLUME_HEALTH
	StorageHealth         bool // GET_STORAGE_HEALTH
	OldCondition          bool // VOLUME_CONDITION, removed in CSI 1.13: Stats returns the condition
	singleNodeMultiWriter bool // SINGLE_NODE_MULTI_WRITER
	OnlineExpand          bool // plugin capability VolumeExpansion ONLINE
	OfflineExpand         bool // plugin capability VolumeExpansion OFFLINE
	// ControllerService is set if the endpoint has a Controller service.
	ControllerService bool
	// ControllerCapabilities lists the CSI names of the capabilities of the Controller service,
	// sorted, if they were read.
	ControllerCapabilities []string
	// Attach is set if the Controller service has PUBLISH_UNPUBLISH_VOLUME.
	Attach bool
	// Topological is plugin capability VOLUME_ACCESSIBILITY_CONSTRAINTS.
	Topological bool
	// SnapshotMetadata is plugin capability SNAPSHOT_METADATA_SERVICE.
	SnapshotMetadata bool
}

// volumeCondition is the number of VOLUME_CONDITION, which CSI had until 1.12.
const volumeCondition csi.NodeServiceCapability_RPC_Type = 4

// readInfo makes the calls whose answers fill Info.
func (d *Driver) readInfo(ctx context.Context) (Info, error) {
	ctx, cancel := context.WithTimeout(ctx, d.deadlines.Info)
	defer cancel()
	ctx = asking(ctx)
	i := Info{Endpoint: d.endpoint}
	steps := []func(context.Context, *Info) error{
		d.readPlugin, d.readPluginCapabilities, d.probe, d.readController, d.readNodeCapabilities, d.readNode,
	}
	if d.controllerOnly {
		steps = steps[:4] // the others ask the Node service
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

// AddPlugin adds the capabilities in an answer of GetPluginCapabilities to i.
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

// probe returns an error if the driver is not ready. An answer without ready means
// ready (CSI 1.13, Probe). A driver that lacks the call counts as ready too, because
// the kubelet never makes it.
func (d *Driver) probe(ctx context.Context, _ *Info) error {
	r, err := d.identity.Probe(ctx, &csi.ProbeRequest{})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return nil
	case err != nil:
		return CallError("Probe", err)
	case r.GetReady() != nil && !r.GetReady().GetValue():
		return fmt.Errorf("call Probe: %w", errNotReady)
	}
	return nil
}

// readController reads the capabilities of the Controller service. A node plugin may
// announce a service that it does not serve at this endpoint; then
// ControllerService becomes false.
func (d *Driver) readController(ctx context.Context, i *Info) error {
	switch {
	case d.controllerOnly && !i.ControllerService:
		return fmt.Errorf("GetPluginCapabilities: %w: CONTROLLER_SERVICE is missing", errNoController)
	case !i.ControllerService || d.nodeOnly:
		return nil
	}
	r, err := csi.NewControllerClient(d.conn).ControllerGetCapabilities(ctx, &csi.ControllerGetCapabilitiesRequest{})
	switch {
	case status.Code(err) == codes.Unimplemented && d.controllerOnly:
		return fmt.Errorf("%w: %w", errNoController, CallError("ControllerGetCapabilities", err))
	case status.Code(err) == codes.Unimplemented:
		i.ControllerService = false
		return nil
	case err != nil:
		return CallError("ControllerGetCapabilities", err)
	}
	for _, c := range r.GetCapabilities() {
		if c.GetRpc() == nil {
			continue
		}
		t := c.GetRpc().GetType()
		i.ControllerCapabilities = append(i.ControllerCapabilities, t.String())
		if t == csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME {
			i.Attach = true
		}
	}
	slices.Sort(i.ControllerCapabilities)
	i.ControllerCapabilities = slices.Compact(i.ControllerCapabilities)
	return nil
}

func (d *Driver) readNodeCapabilities(ctx context.Context, i *Info) error {
	r, err := d.node.NodeGetCapabilities(ctx, &csi.NodeGetCapabilitiesRequest{})
	if status.Code(err) == codes.Unimplemented && i.ControllerService {
		return fmt.Errorf("%w, only the driver's controller part: register the socket of its node part, and this one as its "+
			"controller: csi-volmgr driver register SOCKET --controller=%s: %w", errNoNode, d.endpoint,
			CallError("NodeGetCapabilities", err))
	}
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
			i.singleNodeMultiWriter = true
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

// readNode reads NodeGetInfo. Only drivers that attach must have that call (CSI 1.13,
// NodeGetInfo).
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
	i.MaxVolumes = max(0, r.GetMaxVolumesPerNode()) // a negative number is invalid
	return nil
}

// MaxVolumes asks the driver again how many volumes it serves on this node
// (NodeGetInfo); 0 means no known limit. It does not update Info.
func (d *Driver) MaxVolumes(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, d.deadlines.Info)
	defer cancel()
	r, err := d.node.NodeGetInfo(ctx, &csi.NodeGetInfoRequest{})
	if err != nil {
		return 0, CallError("NodeGetInfo", err)
	}
	return max(0, r.GetMaxVolumesPerNode()), nil
}
