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

// Catalog has the objects of a node's catalog ([files.Source]).
type Catalog struct {
	// Objects returns the catalog, once it is made.
	Objects func() *source.Catalog
	// Silent lists the sources that have not spoken yet.
	Silent func() []string
	// NodeName is the name of the node, whose object tells what pods may use of it; Resources is used if
	// there is no such object.
	NodeName  string
	Resources corev1.ResourceList
}

// Allocatable implements [files.Source].
func (c Catalog) Allocatable() corev1.ResourceList {
	node, _ := c.Objects().Get(source.Key{Kind: resolve.KindNode, Name: c.NodeName}).(*resolve.Node)
	return resolve.AllocatableOf(node, c.Resources)
}

// ConfigMap implements [files.Source].
func (c Catalog) ConfigMap(_ context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return object[*corev1.ConfigMap](c, source.Key{Kind: resolve.KindConfigMap, Namespace: namespace, Name: name})
}

// Secret implements [files.Source].
func (c Catalog) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	return object[*corev1.Secret](c, source.Key{Kind: resolve.KindSecret, Namespace: namespace, Name: name})
}

// TrustBundles implements [files.Source].
func (c Catalog) TrustBundles(context.Context) ([]*certificatesv1.ClusterTrustBundle, error) {
	if err := c.known(source.Key{Kind: resolve.KindTrustBundles}); err != nil {
		return nil, err
	}
	return c.Objects().TrustBundles(), nil
}

// Pod implements [files.Source].
func (c Catalog) Pod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	return object[*corev1.Pod](c, source.Key{Kind: resolve.KindPod, Namespace: namespace, Name: name})
}

// object returns an object of the catalog, nil if there is none, and an error if a source that may have
// it has not spoken yet or cannot read it.
func object[T any](c Catalog, key source.Key) (found T, err error) {
	found, ok := c.Objects().Get(key).(T)
	if ok {
		return found, nil
	}
	return found, c.known(key)
}

// known returns an error if a source has not spoken yet, or has the object and cannot read it.
func (c Catalog) known(key source.Key) error {
	if why := c.Objects().Unread(key); why != "" {
		return fmt.Errorf("%s: %s", key, why)
	}
	if silent := c.Silent(); len(silent) > 0 {
		return fmt.Errorf("%s: not known yet: sources %s have not spoken", key, strings.Join(silent, ", "))
	}
	return nil
}
