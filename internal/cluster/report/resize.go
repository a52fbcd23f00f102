package report

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/host/outage"
)

// ExpandFailure describes a failed expansion of a claim's volume.
type ExpandFailure struct {
	// Bytes is the size that was asked for.
	Bytes int64
	// Text is the error message.
	Text string
	// Infeasible is set if the driver says that the size is impossible.
	Infeasible bool
	// Attempts counts the failures in a row.
	Attempts int
}

// Expanding writes to the claim's status that the node starts to expand its volume, as
// the kubelet does. The caller only logs the error: the expansion does not depend on it.
func (r *Reporter) Expanding(ctx context.Context, c Claim) error {
	return r.changeClaim(ctx, c, func(claim *corev1.PersistentVolumeClaim) map[string]any {
		if claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] != corev1.PersistentVolumeClaimNodeResizePending {
			return nil
		}
		return map[string]any{"allocatedResourceStatuses": map[string]any{
			"storage": corev1.PersistentVolumeClaimNodeResizeInProgress,
		}}
	})
}

// ExpandFailed queues a failure to be written to the claim's status.
func (r *Reporter) ExpandFailed(c Claim, f ExpandFailure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures[c] = f
	r.notify()
}

// failureChange returns the changes of the claim's status by the rules of KEP-1790: a
// condition, and the status NodeResizeInfeasible if the driver says that the size is
// impossible or the user has asked for another size. It returns nil for a claim that no
// recent external-resizer resizes.
func failureChange(claim *corev1.PersistentVolumeClaim, f ExpandFailure) map[string]any {
	status := claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
	if status != corev1.PersistentVolumeClaimNodeResizePending &&
		status != corev1.PersistentVolumeClaimNodeResizeInProgress {
		return nil
	}
	change := map[string]any{}
	if f.Infeasible || f.Attempts > 1 && claim.Spec.Resources.Requests.Storage().Value() != f.Bytes {
		change["allocatedResourceStatuses"] = map[string]any{"storage": corev1.PersistentVolumeClaimNodeResizeInfeasible}
	}
	failed := corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimNodeResizeError, Status: corev1.ConditionTrue,
		LastTransitionTime: metav1.Now(), Message: f.Text,
	}
	conditions := slices.Clone(claim.Status.Conditions)
	switch at := slices.IndexFunc(conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
		return c.Type == failed.Type
	}); {
	case at < 0:
		change["conditions"] = append(conditions, failed)
	case conditions[at].Message != f.Text || conditions[at].Status != failed.Status:
		conditions[at] = failed
		change["conditions"] = conditions
	}
	if len(change) == 0 {
		return nil
	}
	return change
}

// changeClaim reads the claim and applies change to its status, unless another writer
// was faster. It does nothing if the claim does not exist or has another volume.
func (r *Reporter) changeClaim(ctx context.Context, c Claim,
	change func(*corev1.PersistentVolumeClaim) map[string]any,
) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	claims := r.config.Core.PersistentVolumeClaims(c.Namespace)
	claim, err := claims.Get(ctx, c.Name, metav1.GetOptions{})
	if outage.Missing(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	if claim.Spec.VolumeName != c.Volume {
		return nil
	}
	status := change(claim)
	if status == nil {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": claim.ResourceVersion},
		"status":   status,
	})
	if err != nil {
		return fmt.Errorf("write the status of claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	if _, err := claims.Patch(ctx, c.Name, types.MergePatchType, patch, "status"); err != nil {
		return fmt.Errorf("write the status of claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	return nil
}
