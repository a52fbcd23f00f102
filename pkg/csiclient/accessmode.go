package csiclient

import (
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/accessmodes"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// accessMode maps a volume's access modes as external-provisioner does when it makes
// the volume (csi-lib-utils). Two cases follow the kubelet instead: no mode means
// ReadWriteOnce, and a list for which CSI has no mode (ReadOnlyMany with
// ReadWriteOnce) maps to the mode of its first element.
//
// The finer single-node modes are used only if the driver knows them, which it says by
// the node capability SINGLE_NODE_MULTI_WRITER (multiWriter; CSI 1.13,
// VolumeCapability.AccessMode).
func accessMode(modes []state.AccessMode, multiWriter bool) (csi.VolumeCapability_AccessMode_Mode, error) {
	list := make([]corev1.PersistentVolumeAccessMode, 0, max(1, len(modes)))
	for _, m := range modes {
		list = append(list, corev1.PersistentVolumeAccessMode(m))
	}
	if len(list) == 0 {
		list = append(list, corev1.ReadWriteOnce)
	}
	mode, err := accessmodes.ToCSIAccessMode(list, multiWriter)
	if err != nil && len(list) > 1 {
		mode, err = accessmodes.ToCSIAccessMode(list[:1], multiWriter)
	}
	if err != nil {
		return csi.VolumeCapability_AccessMode_UNKNOWN, fmt.Errorf("access modes %q: not known to CSI", modes)
	}
	return mode, nil
}
