package report

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// runInUse keeps status.volumesInUse true.
func (r *Reporter) runInUse(ctx context.Context) {
	var w inUse
	var b backoff
	for ctx.Err() == nil {
		used := r.config.Volumes.Changed()
		v, told := r.view()
		var retry <-chan time.Time
		timer := time.NewTimer(0)
		timer.Stop()
		if v.node != nil && r.config.Volumes.ReconcilerStatesHasBeenSynced() {
			if err := r.reportInUse(ctx, v.node, &w); err != nil {
				wait := b.next()
				r.problem("status.volumesInUse", err, wait)
				timer.Reset(wait)
				retry = timer.C
				// Until then no change is looked at: it could not be written either.
				used, told = nil, nil
			} else {
				b = backoff{}
				r.problem("status.volumesInUse", nil, 0)
			}
		}
		select {
		case <-used:
		case <-told:
		case <-retry:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// inUse is what was written last, and in which Node.
type inUse struct {
	uid  types.UID
	ids  []state.VolumeID // as the manager was told
	list []corev1.UniqueVolumeName
	// written: list is what this process wrote, or found there.
	written bool
}

// reportInUse writes the list where it is another by now, and tells the manager.
func (r *Reporter) reportInUse(ctx context.Context, node *corev1.Node, w *inUse) error {
	if w.uid != node.UID {
		*w = inUse{uid: node.UID} // another Node of the name lists nothing of what we wrote
	}
	for {
		now := r.config.Volumes.GetVolumesInUse()
		list := r.names(now)
		if w.written && slices.Equal(w.ids, now) && slices.Equal(w.list, list) {
			return nil
		}
		// What is to leave the list must not come back into use while it is written.
		if kept := intersection(w.ids, now); len(kept) < len(w.ids) {
			r.config.Volumes.MarkVolumesAsReportedInUse(kept)
			if err := r.config.Volumes.Settle(ctx); err != nil {
				return err
			}
			w.ids = kept
			continue
		}
		if !w.written || !slices.Equal(w.list, list) {
			if w.written || !slices.Equal(node.Status.VolumesInUse, list) {
				w.written = false // what is there is not known until the server has answered
				if err := r.patchInUse(ctx, list); err != nil {
					return err
				}
			}
			w.list, w.written = list, true
		}
		r.config.Volumes.MarkVolumesAsReportedInUse(now)
		w.ids = now
	}
}

// names returns the volumes' names as the attach-detach controller has them.
func (r *Reporter) names(ids []state.VolumeID) []corev1.UniqueVolumeName {
	var list []corev1.UniqueVolumeName
	for _, id := range ids {
		driver, _, _ := cutID(id)
		if r.config.Attachable == nil || r.config.Attachable(driver) {
			list = append(list, corev1.UniqueVolumeName("kubernetes.io/csi/"+string(id)))
		}
	}
	return list
}

func (r *Reporter) patchInUse(ctx context.Context, list []corev1.UniqueVolumeName) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	// A merge patch replaces the list as a whole, whatever others wrote meanwhile.
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"volumesInUse": list}})
	if err != nil {
		return fmt.Errorf("write status.volumesInUse: %w", err)
	}
	if _, err := r.config.Core.Nodes().Patch(ctx, r.config.NodeName, types.MergePatchType, patch, "status"); err != nil {
		return fmt.Errorf("write status.volumesInUse: %w", err)
	}
	return nil
}

// intersection returns the members of a that b has; both are sorted.
func intersection(a, b []state.VolumeID) []state.VolumeID {
	var both []state.VolumeID
	for _, id := range a {
		if _, found := slices.BinarySearch(b, id); found {
			both = append(both, id)
		}
	}
	return both
}
