package operate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
)

// Objects lists the objects of a kind in the catalog, by namespace and name, with a summary but without
// their values.
func (v *Views) Objects(kind string) []server.Object {
	var out []server.Object
	for _, obj := range v.c.Catalog.Objects(kind) {
		meta, ok := obj.(metav1.Object)
		if !ok {
			continue
		}
		o := server.Object{Kind: kind, Namespace: meta.GetNamespace(), Name: meta.GetName(), Labels: meta.GetLabels()}
		o.Keys, o.About = keysOf(obj), about(obj)
		out = append(out, o)
	}
	return out
}

// keysOf returns the keys of a ConfigMap or a Secret.
func keysOf(obj runtime.Object) []string {
	switch o := obj.(type) {
	case *corev1.ConfigMap:
		return append(slices.Sorted(maps.Keys(o.Data)), slices.Sorted(maps.Keys(o.BinaryData))...)
	case *corev1.Secret:
		return slices.Sorted(maps.Keys(o.Data))
	}
	return nil
}

// about returns what a list of the kind shows about obj.
func about(obj runtime.Object) string {
	switch o := obj.(type) {
	case *corev1.ConfigMap:
		return keys(len(o.Data) + len(o.BinaryData))
	case *corev1.Secret:
		return strings.TrimPrefix(string(o.Type)+", "+keys(len(o.Data)), ", ")
	case *storagev1.StorageClass:
		words := []string{o.Provisioner}
		if o.ReclaimPolicy != nil {
			words = append(words, string(*o.ReclaimPolicy))
		}
		if o.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" {
			words = append(words, "default")
		}
		return strings.Join(words, ", ")
	case *storagev1.VolumeAttributesClass:
		return o.DriverName
	case *snapshotv1.VolumeSnapshotClass:
		words := []string{o.Driver, string(o.DeletionPolicy)}
		if o.Annotations[resolve.DefaultSnapshotClass] == "true" {
			words = append(words, "default")
		}
		return strings.Join(words, ", ")
	case *groupv1.VolumeGroupSnapshotClass:
		words := []string{o.Driver, string(o.DeletionPolicy)}
		if o.Annotations[resolve.DefaultGroupSnapshotClass] == "true" {
			words = append(words, "default")
		}
		return strings.Join(words, ", ")
	case *groupv1.VolumeGroupSnapshotContent:
		if o.Spec.Source.GroupSnapshotHandles == nil {
			return o.Spec.Driver
		}
		return o.Spec.Driver + ", " + o.Spec.Source.GroupSnapshotHandles.VolumeGroupSnapshotHandle
	case *snapshotv1.VolumeSnapshotContent:
		if o.Spec.Source.SnapshotHandle == nil {
			return o.Spec.Driver
		}
		return o.Spec.Driver + ", " + *o.Spec.Source.SnapshotHandle
	case *storagev1.CSIDriver:
		words := []string{"attach required"}
		if o.Spec.AttachRequired != nil && !*o.Spec.AttachRequired {
			words[0] = "no attach"
		}
		for _, mode := range o.Spec.VolumeLifecycleModes {
			words = append(words, string(mode))
		}
		return strings.Join(words, ", ")
	}
	return ""
}

func keys(n int) string {
	if n == 1 {
		return "1 key"
	}
	return fmt.Sprintf("%d keys", n)
}
