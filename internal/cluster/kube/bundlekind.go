package kube

import (
	"context"
	"sync/atomic"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// bundleKind returns the kind for ClusterTrustBundles. It reads them as v1, or as the equivalent
// v1beta1 from a server that has only that (Kubernetes 1.33 to 1.36).
func bundleKind(c Config) kind {
	k := kindOf(everywhere(c.Certificates.ClusterTrustBundles))
	if c.CertificatesBeta == nil {
		return k
	}
	list, watchNew, old := k.lister(""), k.watcher(""), new(atomic.Bool)
	beta := c.CertificatesBeta.ClusterTrustBundles()
	k.lister = func(string) listFunc {
		return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			found, err := list(ctx, o)
			if old.Store(apierrors.IsNotFound(err)); !old.Load() {
				return found, err
			}
			bundles, err := beta.List(ctx, o)
			if err != nil {
				return nil, err
			}
			out := &certificatesv1.ClusterTrustBundleList{ListMeta: bundles.ListMeta}
			for i := range bundles.Items {
				out.Items = append(out.Items, *bundleFromBeta(&bundles.Items[i]))
			}
			return out, nil
		}
	}
	k.watcher = func(string) watchFunc {
		return func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if !old.Load() {
				return watchNew(ctx, o)
			}
			return beta.Watch(ctx, o)
		}
	}
	return k
}

// bundleOf returns the bundle of an event, in either version.
func bundleOf(obj runtime.Object) (*certificatesv1.ClusterTrustBundle, bool) {
	if old, ok := obj.(*certificatesv1beta1.ClusterTrustBundle); ok {
		return bundleFromBeta(old), true
	}
	b, ok := obj.(*certificatesv1.ClusterTrustBundle)
	return b, ok
}

func bundleFromBeta(b *certificatesv1beta1.ClusterTrustBundle) *certificatesv1.ClusterTrustBundle {
	return &certificatesv1.ClusterTrustBundle{
		ObjectMeta: b.ObjectMeta,
		Spec:       certificatesv1.ClusterTrustBundleSpec(b.Spec),
	}
}
