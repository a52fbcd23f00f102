package csiclient

import (
	"errors"
	"fmt"
	"maps"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The functions of this file are pure: they build a request from a record, the
// driver's abilities and secrets. They default, trim and translate nothing: an empty
// fs_type stays empty, flags keep their order, and contexts pass unchanged, because
// drivers need or refuse exactly what the volume's owner wrote. A request shares
// no map or slice with the record, which other goroutines read.

func stageRequest(i Info, v state.Volume, secrets map[string]string) (*csi.NodeStageVolumeRequest, error) {
	capability, err := volumeCapability(i, *v.Spec, mountGroup(i, v))
	if err != nil {
		return nil, err
	}
	if err := required("volume handle", v.Spec.Handle, "staging path", v.Spec.StagePath); err != nil {
		return nil, err
	}
	return &csi.NodeStageVolumeRequest{
		VolumeId:          v.Spec.Handle,
		PublishContext:    publishContext(v),
		StagingTargetPath: v.Spec.StagePath,
		VolumeCapability:  capability,
		Secrets:           secrets,
		VolumeContext:     maps.Clone(v.Spec.Context),
	}, nil
}

func publishRequest(i Info, v state.Volume, m state.MountSpec,
	secrets map[string]string,
) (*csi.NodePublishVolumeRequest, error) {
	capability, err := volumeCapability(i, *v.Spec, mountGroup(i, v))
	if err != nil {
		return nil, err
	}
	if err := required("volume handle", v.Spec.Handle, "target path", m.Target); err != nil {
		return nil, err
	}
	if v.Needs.Stage && v.Spec.StagePath == "" {
		return nil, errors.New("staging path: not set")
	}
	return &csi.NodePublishVolumeRequest{
		VolumeId:          v.Spec.Handle,
		PublishContext:    publishContext(v),
		StagingTargetPath: stagingPath(v),
		TargetPath:        m.Target,
		VolumeCapability:  capability,
		Readonly:          m.ReadOnly,
		Secrets:           secrets,
		VolumeContext:     merge(v.Spec.Context, m.Context),
	}, nil
}

func unpublishRequest(v state.Volume, m state.MountSpec) (*csi.NodeUnpublishVolumeRequest, error) {
	if err := required("volume handle", v.Spec.Handle, "target path", m.Target); err != nil {
		return nil, err
	}
	return &csi.NodeUnpublishVolumeRequest{VolumeId: v.Spec.Handle, TargetPath: m.Target}, nil
}

func unstageRequest(v state.Volume) (*csi.NodeUnstageVolumeRequest, error) {
	if err := required("volume handle", v.Spec.Handle, "staging path", v.Spec.StagePath); err != nil {
		return nil, err
	}
	return &csi.NodeUnstageVolumeRequest{VolumeId: v.Spec.Handle, StagingTargetPath: v.Spec.StagePath}, nil
}

// expandRequest asks for a volume of at least the given number of bytes. Its
// capability says whether the volume is a file system or a device (CSI 1.13,
// NodeExpandVolume). As in the kubelet's request, it has no mount group.
func expandRequest(i Info, v state.Volume, m state.MountSpec, bytes int64) (*csi.NodeExpandVolumeRequest, error) {
	spec := *v.Spec        // v shares its Spec with the record
	spec.SELinuxLabel = "" // a label is a mount option
	capability, err := volumeCapability(i, spec, "")
	if err != nil {
		return nil, err
	}
	if err := required("volume handle", v.Spec.Handle, "volume path", m.Target); err != nil {
		return nil, err
	}
	if bytes < 0 {
		return nil, fmt.Errorf("size %d bytes: negative", bytes)
	}
	return &csi.NodeExpandVolumeRequest{
		VolumeId:          v.Spec.Handle,
		VolumePath:        m.Target,
		CapacityRange:     &csi.CapacityRange{RequiredBytes: bytes},
		StagingTargetPath: stagingPath(v),
		VolumeCapability:  capability,
	}, nil
}

func statsRequest(v state.Volume, m state.MountSpec) (*csi.NodeGetVolumeStatsRequest, error) {
	if err := required("volume handle", v.Spec.Handle, "volume path", m.Target); err != nil {
		return nil, err
	}
	return &csi.NodeGetVolumeStatsRequest{
		VolumeId:          v.Spec.Handle,
		VolumePath:        m.Target,
		StagingTargetPath: stagingPath(v),
	}, nil
}

func healthRequest(v state.Volume, target string) (*csi.NodeGetVolumeHealthRequest, error) {
	if err := required("volume handle", v.Spec.Handle); err != nil {
		return nil, err
	}
	return &csi.NodeGetVolumeHealthRequest{
		VolumeId:          v.Spec.Handle,
		VolumePublishPath: target,
		StagingTargetPath: stagingPath(v),
	}, nil
}

func volumeCapability(i Info, s state.Spec, group string) (*csi.VolumeCapability, error) {
	mode, err := accessMode(s.AccessModes, i.singleNodeMultiWriter)
	if err != nil {
		return nil, err
	}
	c := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode}}
	switch s.Mode {
	case state.Block:
		c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	case state.Filesystem:
		c.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{
			FsType: s.FSType, MountFlags: s.MountOptions(), VolumeMountGroup: group,
		}}
	default:
		return nil, fmt.Errorf("volume mode %q: not Filesystem or Block", s.Mode)
	}
	return c, nil
}

// publishContext returns what ControllerPublishVolume answered (CSI 1.13,
// publish_context), to csi-volmgr if it attached the volume, else to the cluster. An
// inline volume is never attached.
func publishContext(v state.Volume) map[string]string {
	switch {
	case v.Spec.Ephemeral:
		return nil
	case v.Needs.Attach:
		return maps.Clone(v.PublishContext)
	}
	return maps.Clone(v.Spec.PublishContext)
}

// stagingPath returns the staging path if the volume is staged (CSI 1.13: "MUST be
// set if the plugin has STAGE_UNSTAGE_VOLUME"), else "". The record decides, not the
// capability that the driver may have gained or lost since.
func stagingPath(v state.Volume) string {
	if !v.Needs.Stage {
		return ""
	}
	return v.Spec.StagePath
}

// mountGroup returns the group to which the driver itself gives the volume's files.
// It comes from the record, so it is the same in every call (CSI 1.13,
// volume_mount_group).
func mountGroup(i Info, v state.Volume) string {
	if !i.MountGroup {
		return ""
	}
	return v.Spec.MountGroup
}

// merge returns a new map with the entries of a and b; b's value wins if both have a key.
func merge(a, b map[string]string) map[string]string {
	m := make(map[string]string, len(a)+len(b))
	maps.Copy(m, a)
	maps.Copy(m, b)
	return m
}

// required returns an error if a value is empty. Its arguments are pairs of name and value.
func required(pairs ...string) error {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			return fmt.Errorf("%s: not set", pairs[i])
		}
	}
	return nil
}
