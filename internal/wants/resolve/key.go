package resolve

import (
	"fmt"
	"strings"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// The kinds of objects that csi-volmgr reads, by their Kubernetes names.
const (
	KindPod              = "Pod"
	KindClaim            = "PersistentVolumeClaim"
	KindVolume           = "PersistentVolume"
	KindClass            = "StorageClass"
	KindAttributesClass  = "VolumeAttributesClass"
	KindCSIDriver        = "CSIDriver"
	KindSecret           = "Secret"
	KindConfigMap        = "ConfigMap"
	KindVolumeAttachment = "VolumeAttachment"
	KindTrustBundle      = "ClusterTrustBundle"
	KindEndpoints        = "Endpoints"
	// The kinds of snapshot.storage.k8s.io, which external-snapshotter defines.
	KindSnapshot        = "VolumeSnapshot"
	KindSnapshotClass   = "VolumeSnapshotClass"
	KindSnapshotContent = "VolumeSnapshotContent"
	// The kinds of groupsnapshot.storage.k8s.io.
	KindGroupSnapshot        = "VolumeGroupSnapshot"
	KindGroupSnapshotClass   = "VolumeGroupSnapshotClass"
	KindGroupSnapshotContent = "VolumeGroupSnapshotContent"
	// KindNode is the kind of this node's own object, see [Node].
	KindNode = "Node"
	// KindTrustBundles is the kind of a key without a name: [Objects].Get returns the
	// list of all ClusterTrustBundles for it.
	KindTrustBundles = "ClusterTrustBundleList"
)

// Key names one object. Namespace is "" for kinds without one.
type Key struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// words has the names of kinds in messages; the others keep their Kubernetes name.
var words = map[string]string{
	KindPod:           "pod",
	KindClaim:         "claim",
	KindVolume:        "volume",
	KindClass:         "class",
	KindSecret:        "secret",
	KindConfigMap:     "configMap",
	KindEndpoints:     "endpoints",
	KindSnapshot:      "snapshot",
	KindGroupSnapshot: "group snapshot",
}

// String returns the key as messages show it: "claim default/data", "CSIDriver csi.example.com".
func (k Key) String() string {
	if k.Kind == KindTrustBundles {
		return "ClusterTrustBundles"
	}
	word := k.Kind
	if w, ok := words[k.Kind]; ok {
		word = w
	}
	name := show(k.Name)
	if k.Namespace != "" {
		name = show(k.Namespace) + "/" + name
	}
	return word + " " + name
}

// Compare orders keys by kind, namespace and name.
func (k Key) Compare(o Key) int {
	if c := strings.Compare(k.Kind, o.Kind); c != 0 {
		return c
	}
	if c := strings.Compare(k.Namespace, o.Namespace); c != 0 {
		return c
	}
	return strings.Compare(k.Name, o.Name)
}

// KeyOf returns the key of an object of one of the kinds above.
func KeyOf(obj runtime.Object) (Key, error) {
	kind := kindOf(obj)
	meta, ok := obj.(metav1.Object)
	if kind == "" || !ok {
		return Key{}, fmt.Errorf("object of type %T: not a kind that csi-volmgr reads", obj)
	}
	k := Key{Kind: kind, Name: meta.GetName()}
	if Namespaced(kind) {
		k.Namespace = meta.GetNamespace()
	}
	return k, nil
}

// Namespaced reports whether objects of the kind have a namespace.
func Namespaced(kind string) bool {
	switch kind {
	case KindPod, KindClaim, KindSecret, KindConfigMap, KindEndpoints, KindSnapshot, KindGroupSnapshot:
		return true
	}
	return false
}

func kindOf(obj runtime.Object) string {
	switch obj.(type) {
	case *corev1.Pod:
		return KindPod
	case *corev1.PersistentVolumeClaim:
		return KindClaim
	case *corev1.PersistentVolume:
		return KindVolume
	case *storagev1.StorageClass:
		return KindClass
	case *storagev1.VolumeAttributesClass:
		return KindAttributesClass
	case *storagev1.CSIDriver:
		return KindCSIDriver
	case *corev1.Secret:
		return KindSecret
	case *corev1.ConfigMap:
		return KindConfigMap
	case *storagev1.VolumeAttachment:
		return KindVolumeAttachment
	case *certificatesv1.ClusterTrustBundle:
		return KindTrustBundle
	case *snapshotv1.VolumeSnapshot:
		return KindSnapshot
	case *snapshotv1.VolumeSnapshotClass:
		return KindSnapshotClass
	case *snapshotv1.VolumeSnapshotContent:
		return KindSnapshotContent
	case *groupv1.VolumeGroupSnapshot:
		return KindGroupSnapshot
	case *groupv1.VolumeGroupSnapshotClass:
		return KindGroupSnapshotClass
	case *groupv1.VolumeGroupSnapshotContent:
		return KindGroupSnapshotContent
	case *Endpoints:
		return KindEndpoints
	case *Node:
		return KindNode
	}
	return ""
}
