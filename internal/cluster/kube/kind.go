package kube

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/kubeclient"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

type (
	getFunc   func(ctx context.Context, key source.Key) (runtime.Object, error)
	listFunc  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error)
	watchFunc func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
)

// kind reads the objects of one kind.
type kind struct {
	get     getFunc
	lister  func(namespace string) listFunc
	watcher func(namespace string) watchFunc
}

// typed is the common part of the typed clients of all kinds.
type typed[T, L runtime.Object] interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (T, error)
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// answerTime limits the time for one answer; it does not apply to watches.
const answerTime = 30 * time.Second

// kindOf returns the kind that the client reads.
func kindOf[T, L runtime.Object, C typed[T, L]](in func(namespace string) C) kind {
	return kind{
		get: func(ctx context.Context, key source.Key) (runtime.Object, error) {
			ctx, cancel := context.WithTimeout(ctx, answerTime)
			defer cancel()
			return in(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
		},
		lister: func(namespace string) listFunc {
			return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				ctx, cancel := context.WithTimeout(ctx, answerTime)
				defer cancel()
				return in(namespace).List(ctx, o)
			}
		},
		watcher: func(namespace string) watchFunc {
			return func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return in(namespace).Watch(ctx, o)
			}
		},
	}
}

// limited limits the concurrent gets and lists of a kind to the capacity of turns, which kinds may
// share. A waiting request has no deadline yet and is not in the client's queue, so the requests
// for pods and the Node do not wait behind it.
func limited(k kind, turns chan struct{}) kind {
	take := func(ctx context.Context) error {
		select {
		case turns <- struct{}{}:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	out := k
	out.get = func(ctx context.Context, key source.Key) (runtime.Object, error) {
		if err := take(ctx); err != nil {
			return nil, err
		}
		defer func() { <-turns }()
		return k.get(ctx, key)
	}
	out.lister = func(namespace string) listFunc {
		list := k.lister(namespace)
		return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if err := take(ctx); err != nil {
				return nil, err
			}
			defer func() { <-turns }()
			return list(ctx, o)
		}
	}
	return out
}

// everywhere adapts the client of a kind without namespaces.
func everywhere[C any](client func() C) func(string) C {
	return func(string) C { return client() }
}

func kinds(c Config) map[string]kind {
	core, storage, bulk := c.Core, c.Storage, c.Bulk
	if bulk == nil {
		bulk = &kubeclient.Clients{Core: core, Storage: storage}
	}
	turns := make(chan struct{}, gatherReads)
	all := map[string]kind{
		resolve.KindPod:       kindOf(core.Pods),
		resolve.KindClaim:     kindOf(bulk.Core.PersistentVolumeClaims),
		resolve.KindSecret:    limited(kindOf(core.Secrets), turns),
		resolve.KindConfigMap: limited(kindOf(core.ConfigMaps), turns),
		resolve.KindEndpoints: limited(kindOf(core.Endpoints), turns),
		resolve.KindVolume:    kindOf(everywhere(bulk.Core.PersistentVolumes)),
		resolve.KindCSIDriver: kindOf(everywhere(storage.CSIDrivers)),
		resolve.KindVolumeAttachment: limited(kindOf(everywhere(bulk.Storage.VolumeAttachments)),
			make(chan struct{}, gatherReads)),
		resolve.KindNode: kindOf(everywhere(core.Nodes)),
	}
	if c.Certificates != nil {
		all[resolve.KindTrustBundles] = bundleKind(c)
	}
	return all
}

// stripped removes the managed fields, which nothing here reads and which are most of an object.
func stripped(obj runtime.Object) runtime.Object {
	if m, ok := obj.(metav1.Object); ok {
		m.SetManagedFields(nil)
	}
	return obj
}
