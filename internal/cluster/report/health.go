package report

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/host/outage"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const (
	// healthEvery is how often the health in the API server is compared with the drivers'
	// answers, in addition to each change: another program may have replaced a Pod's status.
	healthEvery = time.Minute
	// lackFor is the pause after an API server dropped the health that it was sent, because
	// it lacks the feature gate CSIVolumeHealth (off by default in Kubernetes 1.37).
	lackFor = time.Hour
)

// Health is the known health of volumes and of drivers' storage on this node.
type Health struct {
	Pods []PodHealth
	// Storage has the faults of the storage behind each driver; an empty list means healthy.
	Storage map[state.DriverName][]storagev1.StorageHealthCondition
}

// PodHealth is the health of the volumes of one of the API server's pods.
type PodHealth struct {
	// Pod is the last version seen.
	Pod *corev1.Pod
	// Volumes has the faults of each volume, by the pod's name for it; an empty list
	// means healthy.
	Volumes map[string][]corev1.VolumeHealthCondition
}

// HealthChanged says that the result of Config.Health may have changed.
func (r *Reporter) HealthChanged() {
	select {
	case r.health <- struct{}{}:
	default:
	}
}

// runHealth keeps Pod.status.volumeHealth and CSINode.status.storageHealth up to date (KEP-1432).
func (r *Reporter) runHealth(ctx context.Context) {
	w := healthWriter{
		Reporter: r, pods: map[types.UID]podAnswer{},
		storage: map[state.DriverName][]storagev1.StorageHealthCondition{},
	}
	var b outage.Backoff
	for ctx.Err() == nil {
		v, viewChanged := r.view(false)
		wait, changed := healthEvery, (<-chan struct{})(r.health)
		if v.node != nil {
			viewChanged = nil
			if err := w.write(ctx, v, r.config.Health(), time.Now()); err != nil && ctx.Err() == nil {
				wait, changed = b.Next(err), nil
				r.problem("health of volumes", err, wait)
			} else {
				b = outage.Backoff{}
				r.problem("health of volumes", nil, 0)
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-viewChanged:
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// healthWriter is the state of runHealth.
type healthWriter struct {
	*Reporter
	// pods has the newest answer to a write of each pod.
	pods map[types.UID]podAnswer
	// storage has the conditions last seen in the CSINode of the Node with the UID node.
	storage map[state.DriverName][]storagev1.StorageHealthCondition
	node    types.UID
	// noPods and noStorage are until when the health of Pods or the CSINode is not
	// written, because the API server dropped it.
	noPods, noStorage time.Time
}

// podAnswer is the pod in an answer, when it came, and the version that the watch showed then.
type podAnswer struct {
	pod *corev1.Pod
	at  time.Time
	was string
}

// write writes health that the API server lacks. It goes on after a failure, and returns
// the last one.
func (w *healthWriter) write(ctx context.Context, v view, h Health, now time.Time) (failed error) {
	there := make(map[types.UID]bool, len(h.Pods))
	for _, p := range h.Pods {
		there[p.Pod.UID] = true
		if now.Before(w.noPods) || ctx.Err() != nil {
			continue
		}
		if err := w.writePod(ctx, p, now); err != nil {
			failed = err
		}
	}
	maps.DeleteFunc(w.pods, func(uid types.UID, _ podAnswer) bool { return !there[uid] })
	if now.Before(w.noStorage) {
		return failed
	}
	if err := w.writeStorage(ctx, v, h.Storage, now); err != nil {
		failed = err
	}
	return failed
}

// writePod writes a pod's status if it differs.
func (w *healthWriter) writePod(ctx context.Context, p PodHealth, now time.Time) error {
	has := p.Pod
	// The answer is newer than the watch's version until the watch catches up, unless etcd was put back to
	// an earlier copy, in which versions begin again.
	if a, ok := w.pods[has.UID]; ok && older(has, a.pod) && (has.ResourceVersion == a.was || now.Sub(a.at) < checkEvery) {
		has = a.pod
	}
	want, changed := volumeHealth(has.Status.VolumeHealth, p.Volumes, now)
	if !changed {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": has.UID}, "status": map[string]any{"volumeHealth": want},
	})
	if err != nil {
		return fmt.Errorf("write pod %s/%s: %w", has.Namespace, has.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	answer, err := w.config.Core.Pods(has.Namespace).Patch(ctx, has.Name, types.MergePatchType, patch, "status")
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil // the pod is gone, or another with its name exists
	case err != nil:
		return fmt.Errorf("write pod %s/%s: status.volumeHealth: %w", has.Namespace, has.Name, err)
	}
	if w.pods[has.UID] = (podAnswer{answer, now, p.Pod.ResourceVersion}); len(answer.Status.VolumeHealth) == 0 {
		w.noPods = now.Add(lackFor)
		w.logger.Info("the API server does not keep status.volumeHealth of pods", "pod", has.Namespace+"/"+has.Name)
	}
	return nil
}

// volumeHealth returns the new health in a pod's status whose current one is has, and
// whether it differs. A volume that is not in said keeps its entry. Entries differ if
// their sets of status and reason do; a new message alone is not written.
func volumeHealth(has []corev1.PodVolumeHealth, said map[string][]corev1.VolumeHealthCondition,
	now time.Time,
) (want []corev1.PodVolumeHealth, changed bool) {
	type identity struct {
		status corev1.VolumeHealthStatusType
		reason string
	}
	of := func(c corev1.VolumeHealthCondition) identity { return identity{c.Status, c.Reason} }
	want = slices.Clone(has)
	for _, name := range slices.Sorted(maps.Keys(said)) {
		conditions := unique(said[name], of)
		i := slices.IndexFunc(want, func(h corev1.PodVolumeHealth) bool { return h.Name == name })
		if i < 0 && len(conditions) == 0 || i >= 0 && sameSet(want[i].HealthConditions, conditions, of) {
			continue
		}
		entry := corev1.PodVolumeHealth{Name: name, HealthConditions: conditions, LastTransitionTime: metav1.NewTime(now)}
		if changed = true; i < 0 {
			want = append(want, entry)
		} else {
			want[i] = entry
		}
	}
	return want, changed
}

// maxHealth is the API's limit on conditions in an entry.
const maxHealth = 16

// unique returns the first condition of each identity, at most maxHealth.
func unique[C any, I comparable](all []C, identity func(C) I) []C {
	seen := map[I]bool{}
	var out []C
	for _, c := range all {
		if id := identity(c); !seen[id] && len(out) < maxHealth {
			seen[id] = true
			out = append(out, c)
		}
	}
	return out
}

// sameSet reports whether a and b have the same identities.
func sameSet[C any, I comparable](a, b []C, identity func(C) I) bool {
	set := func(all []C) map[I]bool {
		ids := map[I]bool{}
		for _, c := range all {
			ids[identity(c)] = true
		}
		return ids
	}
	return maps.Equal(set(a), set(b))
}
