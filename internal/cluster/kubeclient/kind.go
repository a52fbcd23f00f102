// Package kubeclient reads and writes the few kinds of Kubernetes objects that a
// node needs, by client-go's REST client. It has the methods of client-go's typed
// clients but does not use those, because they register the types of all API groups:
// that was a quarter of the program, and was initialized at each start even without a
// cluster.
//
// It has no state and makes no decisions. internal/wire makes the clients and passes them to
// other rooms in their Config.
package kubeclient

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// object is a pointer to T that is an API object or a list.
type object[T any] interface {
	*T
	runtime.Object
}

// Kind is the client of the objects of one kind, in one namespace or all. Its errors are
// those of client-go, to be tested with [k8s.io/apimachinery/pkg/api/errors].
type Kind[T, L runtime.Object] struct {
	group
	resource, namespace string
	object              func() T
	list                func() L
}

func newKind[T, L any, P object[T], Q object[L]](g group, resource, namespace string) *Kind[P, Q] {
	return &Kind[P, Q]{
		group: g, resource: resource, namespace: namespace,
		object: func() P { return new(T) }, list: func() Q { return new(L) },
	}
}

// to addresses a request to the kind.
func (k *Kind[T, L]) to(r *rest.Request, options runtime.Object) *rest.Request {
	return r.NamespaceIfScoped(k.namespace, k.namespace != "").Resource(k.resource).VersionedParams(options, k.codec)
}

// one sends a request whose answer is an object.
func (k *Kind[T, L]) one(ctx context.Context, r *rest.Request) (T, error) {
	obj := k.object()
	err := r.Do(ctx).Into(obj)
	return obj, err
}

// Get reads an object.
func (k *Kind[T, L]) Get(ctx context.Context, name string, o metav1.GetOptions) (T, error) {
	return k.one(ctx, k.to(k.client.Get(), &o).Name(name))
}

// List reads all objects, or a page of them.
func (k *Kind[T, L]) List(ctx context.Context, o metav1.ListOptions) (L, error) {
	list := k.list()
	err := k.to(k.client.Get(), &o).Timeout(timeout(o)).Do(ctx).Into(list)
	return list, err
}

// Watch follows the objects until it is stopped or the server ends it.
func (k *Kind[T, L]) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	return k.to(k.client.Get(), &o).Timeout(timeout(o)).Watch(ctx)
}

// timeout returns the timeout that the request asks of the server; 0 means none.
func timeout(o metav1.ListOptions) time.Duration {
	if o.TimeoutSeconds == nil {
		return 0
	}
	return time.Duration(*o.TimeoutSeconds) * time.Second
}

// Create creates an object.
func (k *Kind[T, L]) Create(ctx context.Context, obj T, o metav1.CreateOptions) (T, error) {
	return k.one(ctx, k.to(k.client.Post(), &o).Body(obj))
}

// Update replaces the object called name.
func (k *Kind[T, L]) Update(ctx context.Context, name string, obj T, o metav1.UpdateOptions) (T, error) {
	return k.one(ctx, k.to(k.client.Put(), &o).Name(name).Body(obj))
}

// Patch patches an object, or one of its subresources.
func (k *Kind[T, L]) Patch(ctx context.Context, name string, t types.PatchType, patch []byte,
	subresources ...string,
) (T, error) {
	return k.one(ctx, k.to(k.client.Patch(t), &metav1.PatchOptions{}).Name(name).SubResource(subresources...).Body(patch))
}

// Delete deletes an object if it meets the preconditions of o.
func (k *Kind[T, L]) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	return k.client.Delete().NamespaceIfScoped(k.namespace,
		k.namespace != "").Resource(k.resource).Name(name).Body(&o).Do(ctx).Error()
}
