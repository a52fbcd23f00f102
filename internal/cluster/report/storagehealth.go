package report

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// writeStorage writes the CSINode's status if it differs. It reads the CSINode only if the
// conditions of a driver differ from those last seen there.
func (w *healthWriter) writeStorage(ctx context.Context, v view,
	said map[state.DriverName][]storagev1.StorageHealthCondition, now time.Time,
) error {
	if w.node != v.node.UID { // the CSINode goes with its Node
		w.node = v.node.UID
		clear(w.storage)
	}
	changes := map[state.DriverName][]storagev1.StorageHealthCondition{}
	note := func(name state.DriverName, conditions []storagev1.StorageHealthCondition) {
		if seen, known := w.storage[name]; !known || !sameSet(seen, conditions, identityOf) {
			changes[name] = conditions
		}
	}
	for name, conditions := range said {
		note(name, conditions)
	}
	for name := range v.gone {
		if len(w.storage[name]) > 0 {
			note(name, nil)
		}
	}
	if len(changes) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	client := w.config.Storage.CSINodes()
	old, err := client.Get(ctx, v.node.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil // runDrivers makes it
	}
	if err != nil {
		return fmt.Errorf("read CSINode %s: %w", v.node.Name, err)
	}
	want := storageHealth(old.Status.StorageHealth, changes, now)
	if equality.Semantic.DeepEqual(want, old.Status.StorageHealth) {
		maps.Copy(w.storage, changes)
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": old.UID, "resourceVersion": old.ResourceVersion},
		"status":   map[string]any{"storageHealth": want},
	})
	if err != nil {
		return fmt.Errorf("write CSINode %s: %w", v.node.Name, err)
	}
	answer, err := client.Patch(ctx, old.Name, types.MergePatchType, patch, "status")
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err),
		err == nil && len(answer.Status.StorageHealth) != len(want):
		w.noStorage = now.Add(lackFor)
		w.logger.Info("the API server does not keep status.storageHealth of CSINodes", "err", err)
		return nil
	case err != nil:
		return fmt.Errorf("write CSINode %s: status.storageHealth: %w", v.node.Name, err)
	}
	maps.Copy(w.storage, changes)
	return nil
}

// storageIdentity has the fields in which two different conditions of storage differ.
type storageIdentity struct {
	status, reason, accessMode, volumeMode string
}

func identityOf(c storagev1.StorageHealthCondition) storageIdentity {
	i := storageIdentity{status: string(c.Status), reason: c.Reason}
	if c.AccessMode != nil {
		i.accessMode = string(*c.AccessMode)
	}
	if c.VolumeMode != nil {
		i.volumeMode = string(*c.VolumeMode)
	}
	return i
}

// storageHealth returns the new health in a CSINode whose current one is has. A driver that
// is not in said keeps its entry, and one whose storage is healthy has none. A condition
// keeps the time at which it appeared.
func storageHealth(has []storagev1.StorageHealth, said map[state.DriverName][]storagev1.StorageHealthCondition,
	now time.Time,
) []storagev1.StorageHealth {
	var want []storagev1.StorageHealth
	type key struct {
		driver string
		storageIdentity
	}
	before := map[key]metav1.Time{}
	for _, h := range has {
		conditions, reported := said[state.DriverName(h.Name)]
		if !reported || len(conditions) > 0 && sameSet(h.HealthConditions, unique(conditions, identityOf), identityOf) {
			want = append(want, h)
			said = maps.Clone(said)
			delete(said, state.DriverName(h.Name))
			continue
		}
		for _, c := range h.HealthConditions {
			before[key{h.Name, identityOf(c)}] = c.LastTransitionTime
		}
	}
	for _, name := range slices.Sorted(maps.Keys(said)) {
		entry := storagev1.StorageHealth{Name: string(name), HealthConditions: unique(said[name], identityOf)}
		for i, c := range entry.HealthConditions {
			at, there := before[key{entry.Name, identityOf(c)}]
			if !there {
				at = metav1.NewTime(now)
			}
			entry.HealthConditions[i].LastTransitionTime = at
		}
		if len(entry.HealthConditions) > 0 {
			want = append(want, entry)
		}
	}
	return want
}
