package kube

import (
	"maps"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// bundleStream returns the stream of all ClusterTrustBundles. They are few, and everyone may read them.
// Labels decide which of them a pod gets, so all are followed while any pod uses one.
func (f *follower) bundleStream() *stream {
	k := f.p.kinds[f.key.Kind]
	return &stream{
		list: k.lister(""), watch: k.watcher(""), logger: f.p.logger,
		report: func(err error, wait time.Duration) { f.noteError(err, wait) },
		replace: func(objects []runtime.Object) {
			u := source.Update{Remote: source.Remote{Absent: []source.Key{f.key}}} // now the list is known
			f.p.mu.Lock()
			gone := maps.Clone(f.p.bundles)
			f.p.mu.Unlock()
			for _, obj := range objects {
				if b, ok := obj.(*certificatesv1.ClusterTrustBundle); ok {
					u.Put = append(u.Put, stripped(b))
					delete(gone, bundleKey(b))
				}
			}
			u.Delete = slices.SortedFunc(maps.Keys(gone), source.Key.Compare)
			f.applyBundles(u)
		},
		event: func(t watch.EventType, obj runtime.Object) bool {
			b, ok := bundleOf(obj)
			switch {
			case !ok:
			case t == watch.Deleted:
				f.applyBundles(source.Update{Delete: []source.Key{bundleKey(b)}})
			default:
				f.applyBundles(source.Update{Put: []runtime.Object{stripped(b)}})
			}
			return false
		},
	}
}

func bundleKey(b *certificatesv1.ClusterTrustBundle) source.Key {
	return source.Key{Kind: resolve.KindTrustBundle, Name: b.Name}
}

// applyBundles delivers u and updates the set of delivered bundles.
func (f *follower) applyBundles(u source.Update) {
	f.p.mu.Lock()
	if f.p.followers[f.key] == f {
		for _, key := range u.Delete {
			delete(f.p.bundles, key)
		}
		for _, obj := range u.Put {
			if b, ok := obj.(*certificatesv1.ClusterTrustBundle); ok {
				f.p.bundles[bundleKey(b)] = true
			}
		}
	}
	f.p.mu.Unlock()
	f.apply(u)
}

// forgetBundles clears the set of delivered bundles and returns it; the caller holds p.mu.
func (p *Provider) forgetBundles() []source.Key {
	keys := slices.Collect(maps.Keys(p.bundles))
	clear(p.bundles)
	return keys
}
