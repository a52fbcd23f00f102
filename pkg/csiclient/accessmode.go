package csiclient

import (
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/accessmodes"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// accessMode maps a volume's access modes as the provisioner mapped them when
// it made the volume (csi-lib-utils). Two cases are the kubelet's instead: no
// mode means ReadWriteOnce, and a list that CSI has no mode for (ReadOnlyMany
// with ReadWriteOnce) is represented by its first.
//
// The finer single-node modes are sent only where multiWriter (the node
// capability SINGLE_NODE_MULTI_WRITER) says that the driver knows them (CSI
// 1.13, VolumeCapability.AccessMode).
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
