package source

import (
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
)

// Kinds of keys that name a list: the volumes whose claimRef names a claim, and the claims whose
// volumeName names a volume.
const (
	volumesOf = "volumes of claim"
	claimsOf  = "claims of volume"
)

// index finds the members of a list, for example the volumes of a claim.
type index struct {
	// members holds the keys of the objects in each list.
	members map[Key]*smallSet[Key]
	// moved holds, for each object that changed since the last call of clearMoved, the lists that it
	// was in or is in now.
	moved map[Key][]Key
}

func newIndex() index {
	return index{members: map[Key]*smallSet[Key]{}, moved: map[Key][]Key{}}
}

// list returns the list that contains the object, and false if none does.
func list(obj runtime.Object) (Key, bool) {
	switch o := obj.(type) {
	case *corev1.PersistentVolume:
		if ref := o.Spec.ClaimRef; ref != nil {
			return Key{Kind: volumesOf, Namespace: ref.Namespace, Name: ref.Name}, true
		}
	case *corev1.PersistentVolumeClaim:
		if o.Spec.VolumeName != "" {
			return Key{Kind: claimsOf, Name: o.Spec.VolumeName}, true
		}
	case *storagev1.VolumeAttachment:
		if name := o.Spec.Source.PersistentVolumeName; name != nil {
			return Key{Kind: resolve.KindAttachmentsOf, Name: *name}, true
		}
	case *certificatesv1.ClusterTrustBundle:
		return Key{Kind: resolve.KindTrustBundles}, true
	}
	return Key{}, false
}

// replace updates the lists after the key's object changed from was to is.
func (x *index) replace(key Key, was, is runtime.Object) {
	if l, ok := list(was); ok {
		removeFrom(x.members, l, key)
		x.moved[key] = append(x.moved[key], l)
	}
	if l, ok := list(is); ok {
		addTo(x.members, l, key)
		x.moved[key] = append(x.moved[key], l)
	}
}

// lists returns the lists that have contained the object at any time since the last call of
// clearMoved.
func (x *index) lists(key Key) []Key { return x.moved[key] }

func (x *index) clearMoved() {
	if len(x.moved) > 0 {
		x.moved = map[Key][]Key{} // not clear, whose cost follows the map's largest size
	}
}

// view is the catalog during the resolving of one pod. It records the keys that were looked up. The
// catalog's lock must be held.
type view struct {
	catalog *Catalog
	// provider is the pod's provider.
	provider string
	seen     map[Key]bool
	// remote means that the pod's provider delivers only objects that it was asked for.
	remote bool
}

var _ resolve.Objects = (*view)(nil)

func (v *view) Get(key Key) runtime.Object {
	if key.Kind == resolve.KindTrustBundles {
		list := &certificatesv1.ClusterTrustBundleList{}
		for _, b := range members[*certificatesv1.ClusterTrustBundle](v, key) {
			list.Items = append(list.Items, *b)
		}
		return list
	}
	if key.Kind == resolve.KindAttachmentsOf {
		list := &storagev1.VolumeAttachmentList{}
		for _, va := range members[*storagev1.VolumeAttachment](v, key) {
			list.Items = append(list.Items, *va)
		}
		return list
	}
	v.seen[key] = true
	return v.catalog.visible(v.provider, key)
}

func (v *view) VolumesOf(namespace, claim string) []*corev1.PersistentVolume {
	return members[*corev1.PersistentVolume](v, Key{Kind: volumesOf, Namespace: namespace, Name: claim})
}

func (v *view) Holders(volume string) (resolve.Owner, []*corev1.PersistentVolumeClaim) {
	v.seen[Key{Kind: resolve.KindVolume, Name: volume}] = true
	return v.catalog.owners[volume], members[*corev1.PersistentVolumeClaim](v, Key{Kind: claimsOf, Name: volume})
}

func (v *view) Binding(claim Key) resolve.Binding {
	v.seen[claim] = true
	return v.catalog.binding(claim)
}

func (v *view) Unread(key Key) string {
	if hidden, why := v.catalog.unread(key); why != "" {
		v.seen[hidden] = true
		return why
	}
	if why := v.catalog.hidden(v.provider, key); why != "" {
		return why
	}
	if !v.remote {
		return ""
	}
	return v.catalog.remote.unread(key)
}

func members[T runtime.Object](v *view, l Key) []T {
	v.seen[l] = true
	var all []T
	for _, key := range slices.SortedFunc(v.catalog.index.members[l].all(), Key.Compare) {
		if o, ok := v.catalog.holder(key).(T); ok {
			all = append(all, o)
		}
	}
	return all
}
