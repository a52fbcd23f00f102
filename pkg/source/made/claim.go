package made

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/controller"
	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// isOurs reports whether the claim's volume is to be made by the controller:
// it names no volume of its own, and a class that makes volumes; class is the
// claim's, or nil where it is not there.
func isOurs(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) bool {
	if claim.Spec.VolumeName != "" || claim.Status.Phase == corev1.ClaimBound {
		return false
	}
	if class != nil {
		return class.Provisioner != resolve.NoProvisioner
	}
	return claim.Spec.StorageClassName != nil && *claim.Spec.StorageClassName != ""
}

// Retains reports whether a volume of the class stays when its claim is deleted. The
// default is Delete (Kubernetes, StorageClass.reclaimPolicy).
func Retains(class *storagev1.StorageClass) bool {
	return class != nil && class.ReclaimPolicy != nil && *class.ReclaimPolicy == corev1.PersistentVolumeReclaimRetain
}

// ClaimKey returns the controller's key of a claim.
func ClaimKey(k source.Key) controller.Key {
	return controller.Key{Namespace: k.Namespace, Name: k.Name}
}

// snapshotAnnotation is, on a claim whose dataSource is a VolumeSnapshot, the
// driver's id of the snapshot. Without a cluster no other room knows it.
const snapshotAnnotation = "csi-volmgr.dev/snapshot-handle"

// dataSource is what the claim's volume is to hold in the beginning, by
// spec.dataSource or spec.dataSourceRef, which a cluster keeps equal.
func dataSource(claim *corev1.PersistentVolumeClaim) *controller.DataSource {
	var kind, name, namespace string
	switch s, ref := claim.Spec.DataSource, claim.Spec.DataSourceRef; {
	case s != nil:
		kind, name = s.Kind, s.Name
	case ref != nil:
		kind, name = ref.Kind, ref.Name
		if ref.Namespace != nil {
			namespace = *ref.Namespace
		}
	default:
		return nil
	}
	handle := claim.Annotations[snapshotAnnotation]
	switch {
	case namespace != "" && namespace != claim.Namespace:
		return &controller.DataSource{Unknown: fmt.Sprintf("its dataSourceRef %s %s is in namespace %s, and only the "+
			"claim's own may be used", kind, name, namespace)}
	case kind == resolve.KindClaim:
		return &controller.DataSource{Claim: controller.Key{Namespace: claim.Namespace, Name: name}}
	case kind == "VolumeSnapshot" && handle != "":
		return &controller.DataSource{SnapshotHandle: handle}
	case kind == "VolumeSnapshot":
		return &controller.DataSource{Unknown: fmt.Sprintf("its dataSource is VolumeSnapshot %s, and annotation %s does "+
			"not say which snapshot of the driver that is", name, snapshotAnnotation)}
	default:
		return &controller.DataSource{Unknown: fmt.Sprintf("its dataSource is %s %s; want a PersistentVolumeClaim or a "+
			"VolumeSnapshot", kind, name)}
	}
}

// ModeOf returns the mode of a claim or volume; none is a file system.
func ModeOf(m *corev1.PersistentVolumeMode) state.Mode {
	if m != nil && *m == corev1.PersistentVolumeBlock {
		return state.Block
	}
	return state.Filesystem
}

// AccessModes returns the access modes of a claim or volume.
func AccessModes(modes []corev1.PersistentVolumeAccessMode) []state.AccessMode {
	out := make([]state.AccessMode, len(modes))
	for i, m := range modes {
		out[i] = state.AccessMode(m)
	}
	return out
}
