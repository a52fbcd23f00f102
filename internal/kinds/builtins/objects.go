package builtins

import (
	"context"
	"fmt"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// objects reads from the catalog what the built-in kinds show as files (files.Source).
type objects struct{ c Config }

func (o objects) Allocatable() corev1.ResourceList {
	node, _ := o.c.Catalog().Get(source.Key{Kind: resolve.KindNode, Name: o.c.NodeName}).(*resolve.Node)
	return resolve.AllocatableOf(node, o.c.Allocatable)
}

func (o objects) ConfigMap(_ context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return object[*corev1.ConfigMap](o, source.Key{Kind: resolve.KindConfigMap, Namespace: namespace, Name: name})
}

func (o objects) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	return object[*corev1.Secret](o, source.Key{Kind: resolve.KindSecret, Namespace: namespace, Name: name})
}

func (o objects) TrustBundles(context.Context) ([]*certificatesv1.ClusterTrustBundle, error) {
	if err := o.allSpoken(source.Key{Kind: resolve.KindTrustBundles}); err != nil {
		return nil, err
	}
	return o.c.Catalog().TrustBundles(), nil
}

func (o objects) Pod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	return object[*corev1.Pod](o, source.Key{Kind: resolve.KindPod, Namespace: namespace, Name: name})
}

// object returns an object of the catalog, nil if there is none, and an error if a source that may have
// it has not spoken yet.
func object[T any](o objects, key source.Key) (found T, err error) {
	found, ok := o.c.Catalog().Get(key).(T)
	if ok {
		return found, nil
	}
	return found, o.allSpoken(key)
}

// allSpoken returns an error if a source has not spoken yet.
func (o objects) allSpoken(key source.Key) error {
	if silent := o.c.Silent(); len(silent) > 0 {
		return fmt.Errorf("%s: not known yet: sources %s have not spoken", key, strings.Join(silent, ", "))
	}
	return nil
}
