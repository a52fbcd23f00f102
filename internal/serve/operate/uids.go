package operate

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Remains reports whether volumes of a pod may be on the node (source.Config).
func (o *Objects) Remains(uid state.PodUID) bool {
	return !o.recordsShown.Load() || o.c.Manager.KnowsPod(uid)
}

// RunUIDs gives uids to the pods that wait until nothing remains of other pods, until ctx ends.
func (o *Objects) RunUIDs(ctx context.Context) error {
	if o.c.Manager.Settle(ctx) != nil {
		return nil // the node ends
	}
	o.recordsShown.Store(true)
	for {
		listed, unmounted := o.c.Changed(), o.c.Manager.Changed()
		if !o.c.Catalog.Recheck() {
			unmounted = nil // no pod waits
		}
		select {
		case <-listed:
		case <-unmounted:
		case <-ctx.Done():
			return nil
		}
	}
}

// Recorded is a store that tells the catalog which pods have volumes, before the loop acts on what sources said.
type Recorded struct {
	manager.Store
	Catalog func() *source.Catalog // it is made after the store
}

// Load implements manager.Store.
func (r Recorded) Load(ctx context.Context) (state.Loaded, error) {
	loaded, err := r.Store.Load(ctx)
	if err == nil {
		r.Catalog().RecordedVolumes(loaded.Volumes)
		r.Catalog().Recorded(mountedBy(loaded))
	}
	return loaded, err
}

// mountedBy lists the pods that the records name, except those that were adopted without a name.
func mountedBy(loaded state.Loaded) (pods []state.Pod) {
	seen := map[state.PodUID]bool{}
	for _, v := range loaded.Volumes {
		for uid, m := range v.Mounts {
			if m.Pod.Name != "" && !seen[uid] {
				seen[uid], m.Pod.UID = true, uid
				pods = append(pods, m.Pod)
			}
		}
	}
	return pods
}

// checkUIDs refuses pods that ask for the uid of a listed pod, or of each other.
func (o *Objects) checkUIDs(objects []runtime.Object) error {
	var errs []error
	asked := map[types.UID]source.Key{}
	for _, obj := range objects {
		pod, ok := obj.(*corev1.Pod)
		if !ok {
			continue
		}
		key := source.Key{Kind: resolve.KindPod, Namespace: pod.Namespace, Name: pod.Name}
		other, taken := o.c.Catalog.UIDHolder(state.PodUID(pod.UID))
		if !taken {
			other, taken = asked[pod.UID]
		}
		if asked[pod.UID] = key; taken && other != key {
			why := source.UIDTaken(state.PodUID(pod.UID), key, other)
			errs = append(errs, fmt.Errorf("%w: %s: %s", server.ErrConflict, key, why))
		}
	}
	return errors.Join(errs...)
}
