package resolve

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// NodeSizeAnnotation is, on a PersistentVolume that csi-volmgr itself made, the
// size in bytes that the node made of it last. Where a cluster keeps the claim,
// the claim's status says it.
const NodeSizeAnnotation = "csi-volmgr.dev/node-size-bytes"

// noNodeExpansion is, on a claim, the word of external-resizer that nodes have
// nothing to do.
const noNodeExpansion = "volume.kubernetes.io/node-expansion-not-required"

// setSize says in w how large the claim's volume is to be, by the kubelet's rules
// (node_expander.go, KEP-1790): which depend on whether the claim was resized by
// an external-resizer that says in its status how far it is.
func setSize(w *state.VolumeWant, pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) {
	w.SizeBytes = pv.Spec.Capacity.Storage().Value()
	if have, err := strconv.ParseInt(pv.Annotations[NodeSizeAnnotation], 10, 64); err == nil {
		// Without a cluster only the author of the claim takes back what a node refuses.
		request := claim.Spec.Resources.Requests.Storage().Value()
		w.HaveBytes = have
		w.SizeBytes = min(w.SizeBytes, max(request, have))
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

// noGrow says why the node has no part in the expansion now.
func noGrow(claim *corev1.PersistentVolumeClaim, status corev1.ClaimResourceStatus) string {
	name := claim.Namespace + "/" + claim.Name
	if status == corev1.PersistentVolumeClaimNodeResizeInfeasible {
		return fmt.Sprintf("claim %s cannot be expanded to what it asks for: status.allocatedResourceStatuses: found %s; "+
			"ask for another size", name, status)
	}
	return fmt.Sprintf("waiting for claim %s: status.allocatedResourceStatuses: found %s, want %s", name,
		show(cmp.Or(string(status), "none")), corev1.PersistentVolumeClaimNodeResizePending)
}
