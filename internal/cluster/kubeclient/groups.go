package kubeclient

import (
	"context"
	"fmt"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// Clients has the clients of one API server's groups that a node uses. Each group has its
// own rate limit.
type Clients struct {
	Core             *Core
	Storage          *Storage
	Certificates     *Certificates
	CertificatesBeta *CertificatesBeta
}

// New returns clients that send their requests by h.
func New(c *rest.Config, h *http.Client) (*Clients, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	groups := [4]group{}
	for i, version := range []schema.GroupVersion{
		corev1.SchemeGroupVersion, storagev1.SchemeGroupVersion, certificatesv1.SchemeGroupVersion,
		certificatesv1beta1.SchemeGroupVersion,
	} {
		if groups[i], err = newGroup(c, h, version, scheme); err != nil {
			return nil, err
		}
	}
	return &Clients{&Core{groups[0]}, &Storage{groups[1]}, &Certificates{groups[2]}, &CertificatesBeta{groups[3]}}, nil
}

// newScheme returns a scheme with the types of all groups. The groups share it, because a
// server may answer with another version than the one asked for.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // for Status, an answer of every group
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, storagev1.AddToScheme, certificatesv1.AddToScheme, certificatesv1beta1.AddToScheme,
		authenticationv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register types of the API: %w", err)
		}
	}
	return scheme, nil
}

// group is the client of one version of one API group.
type group struct {
	client rest.Interface
	codec  runtime.ParameterCodec
}

func newGroup(c *rest.Config, h *http.Client, version schema.GroupVersion, scheme *runtime.Scheme) (group, error) {
	own := rest.CopyConfig(c)
	own.GroupVersion, own.APIPath = &version, "/apis"
	if version.Group == "" {
		own.APIPath = "/api"
	}
	own.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientForConfigAndClient(own, h)
	if err != nil {
		return group{}, fmt.Errorf("make a client of %s: %w", version, err)
	}
	return group{client: client, codec: runtime.NewParameterCodec(scheme)}, nil
}

// Core is the client of the core group, which has no name.
type Core struct{ group }

// Pods returns the client of the pods of a namespace. Here and below, "" means all namespaces.
func (c *Core) Pods(namespace string) *Kind[*corev1.Pod, *corev1.PodList] {
	return newKind[corev1.Pod, corev1.PodList](c.group, "pods", namespace)
}

// PersistentVolumeClaims returns the client of the claims of a namespace.
func (c *Core) PersistentVolumeClaims(namespace string) *Kind[*corev1.PersistentVolumeClaim,
	*corev1.PersistentVolumeClaimList] {
	return newKind[corev1.PersistentVolumeClaim, corev1.PersistentVolumeClaimList](c.group, "persistentvolumeclaims",
		namespace)
}

// Secrets returns the client of the secrets of a namespace.
func (c *Core) Secrets(namespace string) *Kind[*corev1.Secret, *corev1.SecretList] {
	return newKind[corev1.Secret, corev1.SecretList](c.group, "secrets", namespace)
}

// ConfigMaps returns the client of the configMaps of a namespace.
func (c *Core) ConfigMaps(namespace string) *Kind[*corev1.ConfigMap, *corev1.ConfigMapList] {
	return newKind[corev1.ConfigMap, corev1.ConfigMapList](c.group, "configmaps", namespace)
}

// Endpoints is the predecessor of EndpointSlice; glusterfs volumes still name it.
//
//lint:ignore SA1019 a glusterfs volume names no EndpointSlice
type Endpoints = corev1.Endpoints

// Endpoints returns the client of the endpoints of a namespace.
func (c *Core) Endpoints(namespace string) *Kind[*Endpoints, *corev1.EndpointsList] {
	return newKind[Endpoints, corev1.EndpointsList](c.group, "endpoints", namespace)
}

// Events returns the client of the events of a namespace.
func (c *Core) Events(namespace string) *Kind[*corev1.Event, *corev1.EventList] {
	return newKind[corev1.Event, corev1.EventList](c.group, "events", namespace)
}

// ServiceAccounts returns the client of the service accounts of a namespace.
func (c *Core) ServiceAccounts(namespace string) *Kind[*corev1.ServiceAccount, *corev1.ServiceAccountList] {
	return newKind[corev1.ServiceAccount, corev1.ServiceAccountList](c.group, "serviceaccounts", namespace)
}

// Nodes returns the client of the nodes.
func (c *Core) Nodes() *Kind[*corev1.Node, *corev1.NodeList] {
	return newKind[corev1.Node, corev1.NodeList](c.group, "nodes", "")
}

// PersistentVolumes returns the client of the volumes.
func (c *Core) PersistentVolumes() *Kind[*corev1.PersistentVolume, *corev1.PersistentVolumeList] {
	return newKind[corev1.PersistentVolume, corev1.PersistentVolumeList](c.group, "persistentvolumes", "")
}

// CreateToken requests a token of a service account.
func (c *Core) CreateToken(ctx context.Context, namespace, account string,
	ask *authenticationv1.TokenRequest,
) (*authenticationv1.TokenRequest, error) {
	got := &authenticationv1.TokenRequest{}
	err := c.client.Post().Namespace(namespace).Resource("serviceaccounts").Name(account).
		SubResource("token").Body(ask).Do(ctx).Into(got)
	return got, err
}

// Storage is the client of storage.k8s.io/v1.
type Storage struct{ group }

// CSIDrivers returns the client of the CSIDrivers.
func (c *Storage) CSIDrivers() *Kind[*storagev1.CSIDriver, *storagev1.CSIDriverList] {
	return newKind[storagev1.CSIDriver, storagev1.CSIDriverList](c.group, "csidrivers", "")
}

// CSINodes returns the client of the CSINodes.
func (c *Storage) CSINodes() *Kind[*storagev1.CSINode, *storagev1.CSINodeList] {
	return newKind[storagev1.CSINode, storagev1.CSINodeList](c.group, "csinodes", "")
}

// VolumeAttachments returns the client of the VolumeAttachments.
func (c *Storage) VolumeAttachments() *Kind[*storagev1.VolumeAttachment, *storagev1.VolumeAttachmentList] {
	return newKind[storagev1.VolumeAttachment, storagev1.VolumeAttachmentList](c.group, "volumeattachments", "")
}

// Certificates is the client of certificates.k8s.io/v1.
type Certificates struct{ group }

// ClusterTrustBundles returns the client of the ClusterTrustBundles.
func (c *Certificates) ClusterTrustBundles() *Kind[*certificatesv1.ClusterTrustBundle,
	*certificatesv1.ClusterTrustBundleList] {
	return newKind[certificatesv1.ClusterTrustBundle, certificatesv1.ClusterTrustBundleList](c.group,
		"clustertrustbundles", "")
}

// PodCertificateRequests returns the client of the requests of a namespace.
func (c *Certificates) PodCertificateRequests(namespace string) *Kind[*certificatesv1.PodCertificateRequest,
	*certificatesv1.PodCertificateRequestList] {
	return newKind[certificatesv1.PodCertificateRequest, certificatesv1.PodCertificateRequestList](c.group,
		"podcertificaterequests", namespace)
}

// CertificatesBeta is the client of certificates.k8s.io/v1beta1.
type CertificatesBeta struct{ group }

// ClusterTrustBundles returns the client of the ClusterTrustBundles.
func (c *CertificatesBeta) ClusterTrustBundles() *Kind[*certificatesv1beta1.ClusterTrustBundle,
	*certificatesv1beta1.ClusterTrustBundleList] {
	return newKind[certificatesv1beta1.ClusterTrustBundle, certificatesv1beta1.ClusterTrustBundleList](c.group,
		"clustertrustbundles", "")
}

// PodCertificateRequests returns the client of the requests of a namespace.
func (c *CertificatesBeta) PodCertificateRequests(namespace string) *Kind[*certificatesv1beta1.PodCertificateRequest,
	*certificatesv1beta1.PodCertificateRequestList] {
	return newKind[certificatesv1beta1.PodCertificateRequest, certificatesv1beta1.PodCertificateRequestList](c.group,
		"podcertificaterequests", namespace)
}
