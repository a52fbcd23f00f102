package podcert

import (
	"context"
	"errors"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/kubeclient"
)

// requests is the client of the PodCertificateRequests of a namespace.
type requests interface {
	Create(ctx context.Context, r *certificatesv1.PodCertificateRequest,
		o metav1.CreateOptions) (*certificatesv1.PodCertificateRequest, error)
	List(ctx context.Context, o metav1.ListOptions) (*certificatesv1.PodCertificateRequestList, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// requests returns the client of the API version that the server last accepted.
func (q *Requester) requests(namespace string) requests {
	if q.beta.Load() {
		return betaRequests{q.c.Beta.PodCertificateRequests(namespace)}
	}
	return q.c.Certificates.PodCertificateRequests(namespace)
}

// create creates a request. If the server does not serve the API version, it tries the other.
func (q *Requester) create(ctx context.Context, r *certificatesv1.PodCertificateRequest) error {
	_, err := q.requests(r.Namespace).Create(ctx, r, metav1.CreateOptions{})
	if q.c.Beta == nil || !notServed(err) {
		return err
	}
	q.beta.Store(!q.beta.Load())
	_, err = q.requests(r.Namespace).Create(ctx, r, metav1.CreateOptions{})
	return err
}

// notServed reports whether a NotFound error means that the server lacks the kind, not
// only the object.
func notServed(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	d := status.Status().Details
	return d == nil || d.Name == ""
}

// betaRequests is the client for v1beta1, which Kubernetes 1.35 and 1.36 have.
type betaRequests struct {
	client *kubeclient.Kind[*certificatesv1beta1.PodCertificateRequest, *certificatesv1beta1.PodCertificateRequestList]
}

func (b betaRequests) Create(ctx context.Context, r *certificatesv1.PodCertificateRequest,
	o metav1.CreateOptions,
) (*certificatesv1.PodCertificateRequest, error) {
	s := r.Spec
	made, err := b.client.Create(ctx, &certificatesv1beta1.PodCertificateRequest{
		ObjectMeta: r.ObjectMeta,
		Spec: certificatesv1beta1.PodCertificateRequestSpec{
			SignerName: s.SignerName, PodName: s.PodName, PodUID: s.PodUID,
			ServiceAccountName: s.ServiceAccountName, ServiceAccountUID: s.ServiceAccountUID,
			NodeName: s.NodeName, NodeUID: s.NodeUID, MaxExpirationSeconds: s.MaxExpirationSeconds,
			StubPKCS10Request: s.StubPKCS10Request, UnverifiedUserAnnotations: s.UnverifiedUserAnnotations,
		},
	}, o)
	if err != nil {
		return nil, err
	}
	return fromBeta(made), nil
}

func (b betaRequests) List(
	ctx context.Context, o metav1.ListOptions,
) (*certificatesv1.PodCertificateRequestList, error) {
	list, err := b.client.List(ctx, o)
	if err != nil {
		return nil, err
	}
	out := &certificatesv1.PodCertificateRequestList{ListMeta: list.ListMeta}
	for i := range list.Items {
		out.Items = append(out.Items, *fromBeta(&list.Items[i]))
	}
	return out, nil
}

// Watch returns events with objects of v1beta1, which requestOf converts.
func (b betaRequests) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return b.client.Watch(ctx, o)
}

// requestOf returns the request in an event, converted to v1.
func requestOf(obj runtime.Object) (*certificatesv1.PodCertificateRequest, bool) {
	if old, ok := obj.(*certificatesv1beta1.PodCertificateRequest); ok {
		return fromBeta(old), true
	}
	r, ok := obj.(*certificatesv1.PodCertificateRequest)
	return r, ok
}

// fromBeta converts a request's metadata and status to v1. Its spec is not read.
func fromBeta(r *certificatesv1beta1.PodCertificateRequest) *certificatesv1.PodCertificateRequest {
	return &certificatesv1.PodCertificateRequest{
		ObjectMeta: r.ObjectMeta,
		Status:     certificatesv1.PodCertificateRequestStatus(r.Status),
	}
}
