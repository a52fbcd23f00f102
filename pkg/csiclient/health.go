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

// maxConditions is how many conditions of one answer are used.
const maxConditions = 16

// Condition is one fault that a driver reports. Status is its CSI name, or the number
// of one that this version of CSI does not know; that one is only shown (CSI 1.13:
// unknown values must be ignored).
type Condition struct {
	Status, Reason, Message string
	// AccessMode and VolumeMode say which volumes of the driver's storage are affected; "" means all.
	AccessMode state.AccessMode
	VolumeMode state.Mode
}

// VolumeHealth asks for the faults of a volume as seen from this node (CSI 1.13,
// NodeGetVolumeHealth); nil means none. The volume may be mounted for pod, or only have
// been attempted: CSI allows both paths to be those of an attempt. If the record has no
// mount for pod, or pod is "", the request has no publish path. Only drivers with
// Info.VolumeHealth have the call.
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

// VolumeConditions returns the faults of a volume in an answer, with limited number and length.
func VolumeConditions(h *csi.VolumeHealth) (all []Condition) {
	for _, s := range h.GetHealthStatuses() {
		all = appendCondition(all, Condition{
			Status: s.GetStatus().String(), Reason: s.GetReason(), Message: s.GetMessage(),
		})
	}
	return all
}

// StorageHealth asks for the faults of the storage behind the driver, as seen from this
// node (CSI 1.13, NodeGetStorageHealth). Only drivers with Info.StorageHealth have the
// call.
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

// scope converts a capability to Kubernetes' access mode and volume mode. A mode that
// this version of CSI does not know becomes "", all volumes.
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

// appendCondition appends c, with limited number and length: API answers and logs have it.
func appendCondition(all []Condition, c Condition) []Condition {
	if len(all) == maxConditions {
		return all
	}
	c.Status, c.Reason = clipped(c.Status, maxString), clipped(c.Reason, 2*maxString)
	c.Message = clipped(c.Message, maxMessage)
	return append(all, c)
}
