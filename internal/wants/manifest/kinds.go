package manifest

import (
	"slices"
	"strings"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
)

// object is implemented by all objects here.
type object interface {
	runtime.Object
	metav1.Object
}

// message is implemented by objects with a protobuf form in Kubernetes' API. Objects defined
// elsewhere have only JSON.
type message interface {
	object
	Size() int
	MarshalTo([]byte) (int, error)
	Unmarshal([]byte) error
}

// kind is a kind of object and its form.
type kind struct {
	name       string
	apiVersion string
	make       func() object
}

const (
	coreV1      = "v1"
	storageV1   = "storage.k8s.io/v1"
	certsV1     = "certificates.k8s.io/v1"
	snapshotsV1 = resolve.SnapshotGroup + "/v1"
	groupsV1    = resolve.GroupSnapshotGroup + "/v1"
	listKind    = "List"
)

var kinds = []kind{
	{resolve.KindPod, coreV1, func() object { return new(corev1.Pod) }},
	{resolve.KindClaim, coreV1, func() object { return new(corev1.PersistentVolumeClaim) }},
	{resolve.KindVolume, coreV1, func() object { return new(corev1.PersistentVolume) }},
	{resolve.KindClass, storageV1, func() object { return new(storagev1.StorageClass) }},
	{resolve.KindAttributesClass, storageV1, func() object { return new(storagev1.VolumeAttributesClass) }},
	{resolve.KindCSIDriver, storageV1, func() object { return new(storagev1.CSIDriver) }},
	{resolve.KindSecret, coreV1, func() object { return new(corev1.Secret) }},
	{resolve.KindConfigMap, coreV1, func() object { return new(corev1.ConfigMap) }},
	{resolve.KindVolumeAttachment, storageV1, func() object { return new(storagev1.VolumeAttachment) }},
	{resolve.KindEndpoints, coreV1, func() object { return new(resolve.Endpoints) }},
	{resolve.KindTrustBundle, certsV1, func() object { return new(certificatesv1.ClusterTrustBundle) }},
	{resolve.KindSnapshot, snapshotsV1, func() object { return new(snapshotv1.VolumeSnapshot) }},
	{resolve.KindSnapshotClass, snapshotsV1, func() object { return new(snapshotv1.VolumeSnapshotClass) }},
	{resolve.KindSnapshotContent, snapshotsV1, func() object { return new(snapshotv1.VolumeSnapshotContent) }},
	{resolve.KindGroupSnapshot, groupsV1, func() object { return new(groupv1.VolumeGroupSnapshot) }},
	{resolve.KindGroupSnapshotClass, groupsV1, func() object { return new(groupv1.VolumeGroupSnapshotClass) }},
	{resolve.KindGroupSnapshotContent, groupsV1, func() object { return new(groupv1.VolumeGroupSnapshotContent) }},
}

// has reports whether an object of the version is read as one of k. Group snapshots of v1beta1, which vendors' examples
// still have, have the fields of v1.
func (k kind) has(apiVersion string) bool {
	return apiVersion == k.apiVersion || k.apiVersion == groupsV1 && apiVersion == resolve.GroupSnapshotGroup+"/v1beta1"
}

func kindNamed(name string) (kind, bool) {
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
	if i < 0 {
		return kind{}, false
	}
	return kinds[i], true
}

// itemsOf returns the item kind of a list kind, "" if each item has its own kind. isList is false
// if name is not a list kind.
func itemsOf(name string) (item string, isList bool) {
	if name == listKind {
		return "", true
	}
	item, isList = strings.CutSuffix(name, "List")
	if _, known := kindNamed(item); !isList || !known {
		return "", false
	}
	return item, true
}

// KindNames returns the sorted kinds that a manifest may contain, and then the generic list kind.
func KindNames() []string {
	var names []string
	for _, k := range kinds {
		names = append(names, k.name)
	}
	slices.Sort(names)
	return append(names, listKind)
}
