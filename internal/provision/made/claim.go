package made

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// isOurs reports whether the controller provisions the claim's volume: the claim names no volume,
// and its class provisions volumes. class is the claim's class, or nil if it does not exist.
func isOurs(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) bool {
	if claim.Spec.VolumeName != "" || claim.Status.Phase == corev1.ClaimBound {
		return false
	}
	if class != nil {
		return class.Provisioner != resolve.NoProvisioner
	}
	return claim.Spec.StorageClassName != nil && *claim.Spec.StorageClassName != ""
}

// Retains reports whether a volume of the class stays when its claim is deleted. The default
// reclaimPolicy is Delete (Kubernetes, StorageClass.reclaimPolicy).
func Retains(class *storagev1.StorageClass) bool {
	return class != nil && class.ReclaimPolicy != nil && *class.ReclaimPolicy == corev1.PersistentVolumeReclaimRetain
}

// ClaimKey converts a catalog key to the controller's.
func ClaimKey(k source.Key) controller.Key {
	return controller.Key{Namespace: k.Namespace, Name: k.Name}
}

// snapshotAnnotation is an annotation of a claim whose dataSource is a VolumeSnapshot. It contains
// the driver's snapshot id, for snapshots without a VolumeSnapshot object. A handle reaches every
// namespace's data, so only the claims of [Config.SnapshotHandles] may have it.
const snapshotAnnotation = "csi-volmgr.dev/snapshot-handle"

// AnyNamespace stands for every namespace in [Config.SnapshotHandles].
const AnyNamespace = "*"

// denyHandle denies c its source if that is a snapshot's handle and the claim's namespace is not one of
// allowed.
func denyHandle(c *controller.Claim, allowed []string) {
	if c.Source == nil || c.Source.SnapshotHandle == "" ||
		slices.Contains(allowed, c.Namespace) || slices.Contains(allowed, AnyNamespace) {
		return
	}
	c.Source.Denied = fmt.Sprintf("metadata.annotations[%s]: found %s, but claims of namespace %s may not name a "+
		"snapshot by its handle; remove the annotation and let the dataSource name a VolumeSnapshot of a "+
		"VolumeSnapshotContent with this handle, or have the operator start the daemon with --snapshot-handle-allow=%s",
		snapshotAnnotation, c.Source.SnapshotHandle, c.Namespace, c.Namespace)
}

// dataSource returns the initial content of the claim's volume, from spec.dataSource or
// spec.dataSourceRef, which an API server keeps equal.
func dataSource(claim *corev1.PersistentVolumeClaim) *controller.DataSource {
	ref, contradiction := sourceRef(claim)
	if ref == nil {
		return nil
	}
	if contradiction != "" {
		return &controller.DataSource{Unknown: contradiction}
	}
	what := sourceName(ref.APIGroup, ref.Kind, ref.Name)
	handle := claim.Annotations[snapshotAnnotation]
	group := deref(ref.APIGroup)
	isSnapshot := ref.Kind == resolve.KindSnapshot && (group == resolve.SnapshotGroup || group == "")
	switch namespace := deref(ref.Namespace); {
	case namespace != "" && namespace != claim.Namespace:
		return &controller.DataSource{Unknown: fmt.Sprintf("its dataSourceRef %s is in namespace %s; want the "+
			"claim's namespace", what, namespace)}
	case ref.Kind == resolve.KindClaim && group == "":
		return &controller.DataSource{Claim: controller.Key{Namespace: claim.Namespace, Name: ref.Name}}
	case isSnapshot && handle != "":
		return &controller.DataSource{SnapshotHandle: handle}
	case isSnapshot:
		return &controller.DataSource{Snapshot: controller.Key{Namespace: claim.Namespace, Name: ref.Name}}
	default:
		return &controller.DataSource{Unknown: fmt.Sprintf("its dataSource is %s; want a PersistentVolumeClaim without an "+
			"apiGroup, or a VolumeSnapshot of apiGroup %s", what, resolve.SnapshotGroup)}
	}
}

// sourceRef returns the claim's data source, or nil, and how its two fields contradict each other.
// An API server rejects such a claim, but a claim in a file has not passed one.
func sourceRef(claim *corev1.PersistentVolumeClaim) (ref *corev1.TypedObjectReference, contradiction string) {
	s, ref := claim.Spec.DataSource, claim.Spec.DataSourceRef
	if s == nil {
		return ref, ""
	}
	local := &corev1.TypedObjectReference{APIGroup: s.APIGroup, Kind: s.Kind, Name: s.Name}
	if ref == nil {
		return local, ""
	}
	if deref(s.APIGroup) != deref(ref.APIGroup) || s.Kind != ref.Kind || s.Name != ref.Name {
		return ref, fmt.Sprintf("its dataSource is %s and its dataSourceRef is %s; want one of them, or both equal",
			sourceName(s.APIGroup, s.Kind, s.Name), sourceName(ref.APIGroup, ref.Kind, ref.Name))
	}
	return ref, ""
}

// attributes returns the attributes of the claim's VolumeAttributesClass.
func attributes(claim *corev1.PersistentVolumeClaim,
	get func(name string) *storagev1.VolumeAttributesClass,
) controller.AttributesClass {
	name := deref(claim.Spec.VolumeAttributesClassName)
	if name == "" {
		return controller.AttributesClass{}
	}
	a := controller.AttributesClass{Attributes: controller.Attributes{Class: name}}
	if class := get(name); class != nil {
		a.Driver, a.Parameters = state.DriverName(class.DriverName), class.Parameters
	}
	return a
}

// sourceName returns a data source's kind, with its API group if it has one, and name, for people.
func sourceName(group *string, kind, name string) string {
	if g := deref(group); g != "" {
		kind += "." + g
	}
	return kind + " " + name
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// ModeOf converts a claim's or volume's volumeMode; nil means Filesystem.
func ModeOf(m *corev1.PersistentVolumeMode) state.Mode {
	if m != nil && *m == corev1.PersistentVolumeBlock {
		return state.Block
	}
	return state.Filesystem
}

// AccessModes converts the access modes of a claim or volume.
func AccessModes(modes []corev1.PersistentVolumeAccessMode) []state.AccessMode {
	out := make([]state.AccessMode, len(modes))
	for i, m := range modes {
		out[i] = state.AccessMode(m)
	}
	return out
}
