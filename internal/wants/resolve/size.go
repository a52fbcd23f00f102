package resolve

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// NodeSizeAnnotation, on a PersistentVolume that csi-volmgr itself made, is the
// size in bytes to which the node last expanded it. In a cluster that size is in
// the claim's status.
const NodeSizeAnnotation = "csi-volmgr.dev/node-size-bytes"

// noNodeExpansion is the claim annotation by which external-resizer says that the
// node has nothing to expand.
const noNodeExpansion = "volume.kubernetes.io/node-expansion-not-required"

// setSize sets the size that the claim's volume must get, by the kubelet's rules
// (node_expander.go, KEP-1790). They depend on whether an external-resizer reports
// its progress in the claim's status.
func setSize(w *state.VolumeWant, pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) {
	w.SizeBytes = pv.Spec.Capacity.Storage().Value()
	if have, err := strconv.ParseInt(pv.Annotations[NodeSizeAnnotation], 10, 64); err == nil {
		// Without a cluster, a size that the node refuses is withdrawn only by editing the
		// claim, so a smaller request lowers SizeBytes.
		request := claim.Spec.Resources.Requests.Storage().Value()
		w.HaveBytes = have
		w.SizeBytes = min(w.SizeBytes, max(request, have))
		w.Grown = have >= w.SizeBytes // the driver's controller did not ask for a node's expansion, or it was made
		return
	}
	w.HaveBytes = claim.Status.Capacity.Storage().Value()
	allocated, known := claim.Status.AllocatedResources[corev1.ResourceStorage]
	status, resizing := claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
	switch {
	case !known && !resizing:
	case status == corev1.PersistentVolumeClaimNodeResizePending ||
		status == corev1.PersistentVolumeClaimNodeResizeInProgress:
		if known {
			w.SizeBytes = allocated.Value()
		}
	case status == "" && w.HaveBytes >= w.SizeBytes:
		_, not := claim.Annotations[noNodeExpansion]
		w.Grown = not || !slices.Contains(pv.Spec.AccessModes, corev1.ReadWriteMany)
	default:
		w.NoGrow = noGrow(claim, status)
	}
}

// noGrow says why the node must not expand the volume now.
func noGrow(claim *corev1.PersistentVolumeClaim, status corev1.ClaimResourceStatus) string {
	name := claim.Namespace + "/" + claim.Name
	if status == corev1.PersistentVolumeClaimNodeResizeInfeasible {
		return fmt.Sprintf("claim %s cannot be expanded to what it asks for: status.allocatedResourceStatuses: found %s; "+
			"ask for another size", name, status)
	}
	return fmt.Sprintf("waiting for claim %s: status.allocatedResourceStatuses: found %s, want %s", name,
		show(cmp.Or(string(status), "none")), corev1.PersistentVolumeClaimNodeResizePending)
}
