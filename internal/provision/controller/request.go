package controller

import (
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/accessmodes"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// accessMode folds a claim's access modes into CSI's single one, as csi-lib-utils does. For a list
// without a CSI mode it uses the first. multiWriter says whether the Controller service has
// SINGLE_NODE_MULTI_WRITER.
func accessMode(modes []state.AccessMode, multiWriter bool) (csi.VolumeCapability_AccessMode_Mode, error) {
	var list []corev1.PersistentVolumeAccessMode
	for _, m := range modes {
		list = append(list, corev1.PersistentVolumeAccessMode(m))
	}
	if len(list) == 0 {
		list = append(list, corev1.ReadWriteOnce)
	}
	mode, err := accessmodes.ToCSIAccessMode(list, multiWriter)
	if err != nil {
		mode, err = accessmodes.ToCSIAccessMode(list[:1], multiWriter)
	}
	if err != nil {
		return csi.VolumeCapability_AccessMode_UNKNOWN, fmt.Errorf("access modes %q: not known to CSI", modes)
	}
	return mode, nil
}

// use is how a volume will be used, as far as a volume capability expresses it.
type use struct {
	mode        state.Mode
	accessModes []state.AccessMode
	fsType      string
	flags       []string
}

func (s spec) use() use { return use{s.Mode, s.AccessModes, s.FSType, s.MountOptions} }

// capability returns the volume capability for u.
func capability(u use, multiWriter bool) (*csi.VolumeCapability, error) {
	mode, err := accessMode(u.accessModes, multiWriter)
	if err != nil {
		return nil, err
	}
	c := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode}}
	if u.mode == state.Block {
		c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		return c, nil
	}
	c.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{
		FsType: u.fsType, MountFlags: u.flags,
	}}
	return c, nil
}

// capabilities returns what a volume must be able to do: be used with each of its access modes.
func capabilities(s spec, multiWriter bool) (all []*csi.VolumeCapability, err error) {
	lists := [][]state.AccessMode{s.AccessModes}
	if s.EachMode {
		lists = slices.Collect(slices.Chunk(s.AccessModes, 1))
	}
	for _, modes := range lists {
		u := s.use()
		u.accessModes = modes
		c, err := capability(u, multiWriter)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// createRequest returns the CreateVolume request for a volume (CSI 1.13 CreateVolume).
func createRequest(name string, s spec, multiWriter bool, secret map[string]string) (*csi.CreateVolumeRequest, error) {
	wanted, err := capabilities(s, multiWriter)
	if err != nil {
		return nil, err
	}
	req := &csi.CreateVolumeRequest{
		Name:          name,
		CapacityRange: &csi.CapacityRange{RequiredBytes: s.SizeBytes, LimitBytes: s.LimitBytes},
		Parameters:    s.Parameters,

		MutableParameters: s.Attributes.Parameters,
		Secrets:           secret,

		VolumeCapabilities: wanted,
	}
	switch {
	case s.Source.Snapshot != "":
		req.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: s.Source.Snapshot},
		}}
	case s.Source.Volume != "":
		req.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
			Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: s.Source.Volume},
		}}
	}
	if len(s.Topology) > 0 {
		here := []*csi.Topology{{Segments: s.Topology}}
		req.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: here, Preferred: here}
	}
	return req, nil
}

// expandRequest returns the ControllerExpandVolume request (CSI 1.13 ControllerExpandVolume).
func expandRequest(
	r record, o op, multiWriter bool, secret map[string]string,
) (*csi.ControllerExpandVolumeRequest, error) {
	c, err := capability(r.Spec.use(), multiWriter)
	if err != nil {
		return nil, err
	}
	return &csi.ControllerExpandVolumeRequest{
		VolumeId:         r.Handle,
		CapacityRange:    &csi.CapacityRange{RequiredBytes: o.bytes, LimitBytes: o.limit},
		Secrets:          secret,
		VolumeCapability: c,
	}, nil
}

// attachRequest returns the ControllerPublishVolume request. readonly stays false: the pod decides
// who may write, and not every driver has PUBLISH_READONLY (CSI 1.13 ControllerPublishVolume).
func attachRequest(v state.Volume, nodeID string, multiWriter bool,
	secret map[string]string,
) (*csi.ControllerPublishVolumeRequest, error) {
	c, err := capability(use{v.Spec.Mode, v.Spec.AccessModes, v.Spec.FSType, v.Spec.MountFlags}, multiWriter)
	if err != nil {
		return nil, err
	}
	return &csi.ControllerPublishVolumeRequest{
		VolumeId: v.Spec.Handle, NodeId: nodeID, VolumeCapability: c,
		VolumeContext: v.Spec.Context, Secrets: secret,
	}, nil
}

// maxContext bounds each map of an answer that a record holds, since the journal keeps it: CSI allows 4 KiB, and
// Kubernetes 256 KiB for all annotations of an object.
const maxContext = 256 << 10

func tooLarge(field string, size int) error {
	return fmt.Errorf("the driver answered with a %s of %d bytes; at most %d are stored, and CSI allows 4096", field,
		size, maxContext)
}

// sizeOf returns the bytes of all keys and values.
func sizeOf(m map[string]string) (n int) {
	for k, v := range m {
		n += len(k) + len(v)
	}
	return n
}

// checkCreated checks the answer to a CreateVolume for s made on a node with the given topology. It
// returns an error if the answer is unusable, and sets created.reject if the volume does not fit.
func checkCreated(s spec, node map[string]string, v *csi.Volume) (created, error) {
	c := created{
		handle: v.GetVolumeId(), capacityBytes: v.GetCapacityBytes(), context: v.GetVolumeContext(),
	}
	switch {
	case c.handle == "":
		return created{}, fmt.Errorf("the driver answered OK without a volume_id")
	case len(c.handle) > state.MaxHandle:
		return created{}, fmt.Errorf("the driver answered with a volume_id of %d bytes; at most %d are allowed",
			len(c.handle), state.MaxHandle)
	case sizeOf(c.context) > maxContext:
		return created{}, tooLarge("volume_context", sizeOf(c.context))
	}
	if c.capacityBytes == 0 {
		c.capacityBytes = s.SizeBytes // "unknown" (CSI 1.13 Volume.capacity_bytes)
	}
	size := 0
	for _, t := range v.GetAccessibleTopology() {
		c.topology = append(c.topology, t.GetSegments())
		size += sizeOf(t.GetSegments())
	}
	if size > maxContext {
		return created{}, tooLarge("accessible_topology", size)
	}
	from := v.GetContentSource()
	switch {
	case c.capacityBytes < s.SizeBytes:
		c.reject = fmt.Sprintf("the driver made a volume of %d bytes where %d were asked for", c.capacityBytes, s.SizeBytes)
	case s.LimitBytes > 0 && c.capacityBytes > s.LimitBytes:
		c.reject = fmt.Sprintf("the driver made a volume of %d bytes where at most %d were asked for", c.capacityBytes,
			s.LimitBytes)
	case from.GetVolume().GetVolumeId() != s.Source.Volume || from.GetSnapshot().GetSnapshotId() != s.Source.Snapshot:
		c.reject = "the driver did not make the volume from the content source asked for"
	case len(s.Topology) > 0 && !reachable(c.topology, node):
		c.reject = fmt.Sprintf("the driver made a volume that this node cannot reach: it is at %v, the node at %v",
			c.topology, node)
	}
	return c, nil
}

// reachable reports whether a volume with the given topologies can be reached from node: node must
// have every segment of one of them. A volume without topologies can be reached from anywhere (CSI
// 1.13 Volume.accessible_topology).
func reachable(volume []map[string]string, node map[string]string) bool {
	if len(volume) == 0 {
		return true
	}
	return slices.ContainsFunc(volume, func(segments map[string]string) bool {
		for key, want := range segments {
			if v, ok := node[key]; !ok || v != want {
				return false
			}
		}
		return true
	})
}
