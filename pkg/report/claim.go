package report

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Claim names a claim.
type Claim struct{ Namespace, Name string }

// Expanded tells that the node serves the claim's volume with so many bytes by
// now. It may be told again and again.
func (r *Reporter) Expanded(c Claim, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sizes[c] = max(r.sizes[c], bytes)
	r.wake()
}

// runClaims writes the sizes that claims do not show yet.
func (r *Reporter) runClaims(ctx context.Context) {
	var b backoff
	for ctx.Err() == nil {
		r.mu.Lock()
		sizes, told := maps.Clone(r.sizes), r.changed
		r.mu.Unlock()
		var failed error
		for _, c := range slices.SortedFunc(maps.Keys(sizes), func(a, b Claim) int {
			return slices.Compare([]string{a.Namespace, a.Name}, []string{b.Namespace, b.Name})
		}) {
			if err := r.writeSize(ctx, c, sizes[c]); err != nil {
				failed = err
				continue
			}
			r.mu.Lock()
			if r.sizes[c] == sizes[c] {
				delete(r.sizes, c)
			}
			r.mu.Unlock()
		}
		var retry <-chan time.Time
		timer := time.NewTimer(0)
		timer.Stop()
		if wait := time.Duration(0); failed != nil && ctx.Err() == nil {
			wait = b.next()
			timer.Reset(wait)
			retry, told = timer.C, nil
			r.problem("status of claims", failed, wait)
		} else {
			b = backoff{}
			r.problem("status of claims", nil, 0)
		}
		select {
		case <-told:
		case <-retry:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// writeSize ends the claim's expansion, as the kubelet does after NodeExpandVolume:
// the capacity is what is served, and nothing says any more that it is resized.
func (r *Reporter) writeSize(ctx context.Context, c Claim, bytes int64) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	claims := r.config.Core.PersistentVolumeClaims(c.Namespace)
	claim, err := claims.Get(ctx, c.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	change := sizeChange(claim, bytes)
	if change == nil {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": claim.ResourceVersion}, "status": change})
	if err != nil {
		return fmt.Errorf("write the status of claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	if _, err := claims.Patch(ctx, c.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("write the status of claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	return nil
}

// sizeChange returns what is to change in the claim's status, nil for nothing. A
// claim of an old external-resizer has no allocatedResources: then the capacity
// and the conditions are all that there is.
func sizeChange(claim *corev1.PersistentVolumeClaim, bytes int64) map[string]any {
	status, resizing := claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
	if allocated, ok := claim.Status.AllocatedResources[corev1.ResourceStorage]; ok && bytes < allocated.Value() {
		return nil // it grows further yet
	}
	if resizing && status != corev1.PersistentVolumeClaimNodeResizePending && status != corev1.PersistentVolumeClaimNodeResizeInProgress {
		return nil // it is the controller's turn
	}
	if claim.Status.Capacity.Storage().Value() >= bytes && !resizing {
		return nil
	}
	conditions := slices.DeleteFunc(slices.Clone(claim.Status.Conditions), func(c corev1.PersistentVolumeClaimCondition) bool {
		return slices.Contains([]corev1.PersistentVolumeClaimConditionType{
			corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending, corev1.PersistentVolumeClaimNodeResizeError,
		}, c.Type)
	})
	size := max(bytes, claim.Status.Capacity.Storage().Value())
	change := map[string]any{"capacity": map[string]any{"storage": resource.NewQuantity(size, resource.BinarySI).String()}, "conditions": conditions}
	if resizing {
		change["allocatedResourceStatuses"] = map[string]any{"storage": nil}
	}
	return change
}
