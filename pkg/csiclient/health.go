package csiclient

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const (
	nodeVolumeHealth  = "NodeGetVolumeHealth"
	nodeStorageHealth = "NodeGetStorageHealth"
)

// maxConditions bounds what is taken of one answer about health.
const maxConditions = 16

// Condition is one thing that a driver says is wrong. Status is CSI's word for
// it; of a kind that this version of CSI has no word for it is the number, and
// is only shown (CSI 1.13: unknown values must be ignored).
type Condition struct {
	Status, Reason, Message string
	// AccessMode and VolumeMode say which volumes of a driver's storage it concerns; "" is all.
	AccessMode state.AccessMode
	VolumeMode state.Mode
}

// VolumeHealth asks what is wrong, as seen from this node, with the volume that
// pod has mounted or that was tried for it (CSI 1.13, NodeGetVolumeHealth: both paths may
// be of an attempt); nothing is nil. A pod without a mount in the record, "" among them, leaves
// the publish path out. Only drivers with Info.VolumeHealth have the call.
func (d *Driver) VolumeHealth(ctx context.Context, v state.Volume, pod state.PodUID) ([]Condition, error) {
	if !d.Info().VolumeHealth {
		return nil, lacks(nodeVolumeHealth, "GET_VOLUME_HEALTH")
	}
	req, err := healthRequest(v, v.Mounts[pod].Target)
	if err != nil {
		return nil, refused(nodeVolumeHealth, err)
	}
	ctx, cancel := context.WithTimeout(about(ctx, v), d.deadlines.Stats)
	defer cancel()
	r, err := d.node.NodeGetVolumeHealth(ctx, req)
	if err != nil {
		return nil, CallError(nodeVolumeHealth, err)
	}
	return VolumeConditions(r.GetVolumeHealth()), nil
}

// VolumeConditions is what an answer says is wrong with a volume, within bounds.
func VolumeConditions(h *csi.VolumeHealth) (all []Condition) {
	for _, s := range h.GetHealthStatuses() {
		all = appendCondition(all, Condition{
			Status: s.GetStatus().String(), Reason: s.GetReason(), Message: s.GetMessage(),
		})
	}
	return all
}

// StorageHealth asks what is wrong with the storage behind the driver, as seen
// from this node (CSI 1.13, NodeGetStorageHealth). Only drivers with
// Info.StorageHealth have the call.
func (d *Driver) StorageHealth(ctx context.Context) ([]Condition, error) {
	if !d.Info().StorageHealth {
		return nil, lacks(nodeStorageHealth, "GET_STORAGE_HEALTH")
	}
	ctx, cancel := context.WithTimeout(ctx, d.deadlines.Stats)
	defer cancel()
	r, err := d.node.NodeGetStorageHealth(ctx, &csi.NodeGetStorageHealthRequest{})
	if err != nil {
		return nil, CallError(nodeStorageHealth, err)
	}
	var all []Condition
	for _, s := range r.GetBackendHealth() {
		c := Condition{Status: s.GetStatus().String(), Reason: s.GetReason(), Message: s.GetMessage()}
		c.AccessMode, c.VolumeMode = scope(s.GetVolumeCapability())
		all = appendCondition(all, c)
	}
	return all, nil
}

// scope says which volumes a capability is of, in the words of Kubernetes. Those of
// one that CSI has no word for are all.
func scope(c *csi.VolumeCapability) (state.AccessMode, state.Mode) {
	var mode state.Mode
	switch c.GetAccessType().(type) {
	case *csi.VolumeCapability_Block:
		mode = state.Block
	case *csi.VolumeCapability_Mount:
		mode = state.Filesystem
	}
	switch c.GetAccessMode().GetMode() {
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
		return state.ReadWriteOnce, mode
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER:
		return state.ReadWriteOncePod, mode
	case csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY:
		return state.ReadOnlyMany, mode
	case csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER,
		csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
		return state.ReadWriteMany, mode
	}
	return "", mode
}

// appendCondition takes one in with bounds: it goes into answers and logs.
func appendCondition(all []Condition, c Condition) []Condition {
	if len(all) == maxConditions {
		return all
	}
	c.Status, c.Reason = clipped(c.Status, maxString), clipped(c.Reason, 2*maxString)
	c.Message = clipped(c.Message, maxMessage)
	return append(all, c)
}
