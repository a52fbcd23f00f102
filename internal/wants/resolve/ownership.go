package resolve

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// ownership returns how csi-volmgr gives the files of a CSI volume to the pod's
// fsGroup if the driver does not. The driver's fsGroupPolicy and the pod's
// fsGroupChangePolicy decide; a read-only volume is never changed.
func (r *resolver) ownership(w state.VolumeWant, p policy) state.Ownership {
	if w.Mount.FSGroup == nil || w.Mount.ReadOnly {
		return ""
	}
	switch p.fsGroup {
	case storagev1.FileFSGroupPolicy:
	case storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy:
		one := w.Spec.Ephemeral || slices.Contains(w.Spec.AccessModes, state.ReadWriteOnce) ||
			slices.Contains(w.Spec.AccessModes, state.ReadWriteOncePod)
		if w.Spec.FSType == "" || !one {
			return ""
		}
	default:
		return ""
	}
	if c := r.pod.Spec.SecurityContext.FSGroupChangePolicy; c != nil && *c == corev1.FSGroupChangeOnRootMismatch {
		return state.OwnOnRootMismatch
	}
	return state.OwnAlways
}
