package main

import (
	"reflect"
	"slices"
	"strings"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// field is a leaf field of an object, by its path: it has no fields of its own, or its
// type is not one of the API's own structs (a quantity, a label selector).
type field struct{ kind, path string }

func (f field) key() string { return f.kind + " " + f.path }

// fields lists the fields that an author can write: those below spec or, for classes,
// which have no spec, below the object. Metadata says nothing about volumes.
func fields() []field {
	var all []field
	for _, root := range []struct {
		kind, path string
		of         reflect.Type
	}{
		{"Pod", "spec", reflect.TypeFor[corev1.PodSpec]()},
		{"PersistentVolume", "spec", reflect.TypeFor[corev1.PersistentVolumeSpec]()},
		{"PersistentVolumeClaim", "spec", reflect.TypeFor[corev1.PersistentVolumeClaimSpec]()},
		{"StorageClass", "", reflect.TypeFor[storagev1.StorageClass]()},
		{"VolumeAttributesClass", "", reflect.TypeFor[storagev1.VolumeAttributesClass]()},
		{"CSIDriver", "spec", reflect.TypeFor[storagev1.CSIDriverSpec]()},
		{"VolumeSnapshot", "spec", reflect.TypeFor[snapshotv1.VolumeSnapshotSpec]()},
		{"VolumeSnapshotClass", "", reflect.TypeFor[snapshotv1.VolumeSnapshotClass]()},
		{"VolumeGroupSnapshot", "spec", reflect.TypeFor[groupv1.VolumeGroupSnapshotSpec]()},
		{"VolumeGroupSnapshotClass", "", reflect.TypeFor[groupv1.VolumeGroupSnapshotClass]()},
		{"VolumeGroupSnapshotContent", "spec", reflect.TypeFor[groupv1.VolumeGroupSnapshotContentSpec]()},
		{"VolumeSnapshotContent", "spec", reflect.TypeFor[snapshotv1.VolumeSnapshotContentSpec]()},
	} {
		walk(root.of, root.path, func(path string) {
			f := field{root.kind, path}
			if !slices.Contains(all, f) {
				all = append(all, f)
			}
		})
	}
	return all
}

// containers are the lists that are treated as one, since their items have the same fields.
var containers = []string{"initContainers", "containers", "ephemeralContainers"}

// walk calls visit for each field at or below a type.
func walk(t reflect.Type, at string, visit func(path string)) {
	switch {
	case t.Kind() == reflect.Pointer:
		walk(t.Elem(), at, visit)
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		walk(t.Elem(), at+"[]", visit)
	case t.Kind() == reflect.Struct && isAPI(t):
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case f.Anonymous && !isAPI(f.Type): // TypeMeta, ObjectMeta
			case f.Anonymous: // its fields are inlined
				walk(f.Type, at, visit)
			case slices.Contains(containers, name) && at == "spec":
				walk(f.Type, at+".containers", visit)
			default:
				walk(f.Type, strings.TrimPrefix(at+"."+name, "."), visit)
			}
		}
	default:
		visit(at)
	}
}

// isAPI reports whether a type belongs to the API's own packages.
func isAPI(t reflect.Type) bool {
	return strings.HasPrefix(t.PkgPath(), "k8s.io/api/") ||
		strings.HasPrefix(t.PkgPath(), "github.com/kubernetes-csi/external-snapshotter/")
}

// covers reports whether a decision for one path applies to the other: the same path or,
// unless the decision is done, a path below it.
func (d decision) covers(f field) bool {
	if d.kind != f.kind {
		return false
	}
	rest, below := strings.CutPrefix(f.path, d.path)
	return below && (rest == "" || d.decision != done && (rest[0] == '.' || rest[0] == '['))
}

// decide returns the decision for a field: of several, the one with the longest path.
func decide(all []decision, f field) (d decision, ok bool) {
	for _, one := range all {
		if one.covers(f) && (!ok || len(one.path) > len(d.path)) {
			d, ok = one, true
		}
	}
	return d, ok
}
