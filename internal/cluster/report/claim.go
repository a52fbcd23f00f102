package report

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/csi-volmgr/csi-volmgr/internal/host/outage"
)

// Claim names a claim and its PersistentVolume. A claim of that name with another volume was made
// after the first was deleted: nothing is written to it.
type Claim struct{ Namespace, Name, Volume string }

// Expanded says that the claim's volume on this node now has this many bytes. Repeated
// calls are harmless.
func (r *Reporter) Expanded(c Claim, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sizes[c] = max(r.sizes[c], bytes)
	delete(r.failures, c)
	r.notify()
}

// runClaims writes new sizes and failures of expansions to claims.
func (r *Reporter) runClaims(ctx context.Context) {
	var b outage.Backoff
	for ctx.Err() == nil {
		r.mu.Lock()
		sizes, failures, changed := maps.Clone(r.sizes), maps.Clone(r.failures), r.changed
		r.mu.Unlock()
		failed := writeClaims(ctx, r, failures, r.failures, failureChange)
		if err := writeClaims(ctx, r, sizes, r.sizes, sizeChange); err != nil {
			failed = err
		}
		var retry <-chan time.Time
		timer := time.NewTimer(0)
		timer.Stop()
		if wait := time.Duration(0); failed != nil && ctx.Err() == nil {
			wait = b.Next(failed)
			timer.Reset(wait)
			retry, changed = timer.C, nil
			r.problem("status of claims", failed, wait)
		} else {
			b = outage.Backoff{}
			r.problem("status of claims", nil, 0)
		}
		select {
		case <-changed:
		case <-retry:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

func compareClaims(a, b Claim) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Volume, b.Volume))
}

// writeClaims writes pending to the claims, and deletes each written value from kept
// unless it has changed meanwhile. It returns the last failure.
func writeClaims[V comparable](ctx context.Context, r *Reporter, pending, kept map[Claim]V,
	change func(claim *corev1.PersistentVolumeClaim, v V) map[string]any,
) (failed error) {
	for _, c := range slices.SortedFunc(maps.Keys(pending), compareClaims) {
		err := r.changeClaim(ctx, c, func(claim *corev1.PersistentVolumeClaim) map[string]any {
			return change(claim, pending[c])
		})
		if err != nil {
			failed = err
			continue
		}
		r.mu.Lock()
		if kept[c] == pending[c] {
			delete(kept, c)
		}
		r.mu.Unlock()
	}
	return failed
}

// sizeChange ends a claim's expansion, as the kubelet does after NodeExpandVolume: it
// sets the capacity and removes the resize status and conditions. It returns the changes
// of the claim's status, or nil if there are none. A claim of an old external-resizer has
// no allocatedResources; then only capacity and conditions change.
func sizeChange(claim *corev1.PersistentVolumeClaim, bytes int64) map[string]any {
	status, resizing := claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
	if allocated, ok := claim.Status.AllocatedResources[corev1.ResourceStorage]; ok && bytes < allocated.Value() {
		return nil // the volume must grow further
	}
	if resizing && status != corev1.PersistentVolumeClaimNodeResizePending &&
		status != corev1.PersistentVolumeClaimNodeResizeInProgress {
		return nil // it is the controller's turn
	}
	if claim.Status.Capacity.Storage().Value() >= bytes && !resizing {
		return nil
	}
	conditions := slices.DeleteFunc(slices.Clone(claim.Status.Conditions),
		func(c corev1.PersistentVolumeClaimCondition) bool {
			return slices.Contains([]corev1.PersistentVolumeClaimConditionType{
				corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending,
				corev1.PersistentVolumeClaimNodeResizeError,
			}, c.Type)
		})
	size := max(bytes, claim.Status.Capacity.Storage().Value())
	change := map[string]any{
		"capacity":   map[string]any{"storage": resource.NewQuantity(size, resource.BinarySI).String()},
		"conditions": conditions,
	}
	if resizing {
		change["allocatedResourceStatuses"] = map[string]any{"storage": nil}
	}
	return change
}
