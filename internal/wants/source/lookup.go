package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// ErrNotFound means that no provider has the object.
var ErrNotFound = errors.New("not found")

// ErrNotText means that a secret's value is not UTF-8 text, which CSI requires of secrets.
var ErrNotText = errors.New("not UTF-8 text")

// defaultClass is the annotation of the StorageClass that claims without a class get.
const defaultClass = "storageclass.kubernetes.io/is-default-class"

// Get returns the key's effective object, or nil.
func (c *Catalog) Get(key Key) runtime.Object {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.holder(key)
}

// Secret returns a secret's values for a CSI request. Its errors contain keys, never values.
func (c *Catalog) Secret(ctx context.Context, ref state.SecretRef) (map[string]string, error) {
	key := Key{Kind: resolve.KindSecret, Namespace: ref.Namespace, Name: ref.Name}
	secret, err := find[*corev1.Secret](ctx, c, key)
	if err != nil {
		return nil, err
	}
	return SecretValues(secret)
}

// SecretValues converts a secret's data to the values of a CSI request. Its errors contain keys,
// never values.
func SecretValues(secret *corev1.Secret) (map[string]string, error) {
	key := Key{Kind: resolve.KindSecret, Namespace: secret.Namespace, Name: secret.Name}
	values := make(map[string]string, len(secret.Data))
	for _, k := range slices.Sorted(maps.Keys(secret.Data)) {
		if !utf8.Valid(secret.Data[k]) {
			return nil, fmt.Errorf("%s: data[%s]: %w", key, k, ErrNotText)
		}
		values[k] = string(secret.Data[k])
	}
	return values, nil
}

// Provider returns the provider of the key's effective object, or "".
func (c *Catalog) Provider(key Key) string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.effective(key)
}

// Binding returns the volume that was chosen for a claim, and what the claim waits for.
func (c *Catalog) Binding(claim Key) resolve.Binding {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.binding(claim)
}

// binding is Binding for callers that hold the lock. A note about the choice of a volume takes
// precedence over one about the creation of a volume.
func (c *Catalog) binding(claim Key) resolve.Binding {
	b := c.bindings[claim]
	if b.Note == "" {
		b.Note, b.Cause = c.notes[claim].Note, c.notes[claim].Cause
	}
	if text := c.waits[claim]; text != "" && c.holder(claim) == nil {
		b.Note, b.Cause = text, state.Cause{}
	}
	return b
}

// CheckAffinity returns an error if the volume's node affinity excludes this node, judged by the labels that
// are known without a cluster's Node. It returns nil if only the volume's driver can judge the
// affinity.
func (c *Catalog) CheckAffinity(pv *corev1.PersistentVolume) error { return c.config.CheckAffinity(pv) }

// VolumeOf returns the claim's volume, or nil; see [resolve.VolumeOf].
func (c *Catalog) VolumeOf(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	pv, _, _ := c.Bound(claim)
	return pv
}

// Bound returns the claim's volume, or why it has none; see [resolve.VolumeOf].
func (c *Catalog) Bound(claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, state.Cause, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	key := Key{Kind: resolve.KindClaim, Namespace: claim.Namespace, Name: claim.Name}
	return resolve.VolumeOf(claim, &view{catalog: c, provider: c.effective(key), seen: map[Key]bool{}})
}

// ConfigMap returns a configMap.
func (c *Catalog) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return find[*corev1.ConfigMap](ctx, c, Key{Kind: resolve.KindConfigMap, Namespace: namespace, Name: name})
}

func find[T runtime.Object](ctx context.Context, c *Catalog, key Key) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, fmt.Errorf("%s: %w", key, context.Cause(ctx))
	}
	if o, ok := c.Get(key).(T); ok {
		return o, nil
	}
	return none, fmt.Errorf("%s: %w", key, ErrNotFound)
}

// SnapshotClasses lists the classes of snapshots by name.
func (c *Catalog) SnapshotClasses() []*snapshotv1.VolumeSnapshotClass {
	return all[*snapshotv1.VolumeSnapshotClass](c, resolve.KindSnapshotClass)
}

// GroupSnapshotClasses lists the classes of group snapshots by name.
func (c *Catalog) GroupSnapshotClasses() []*groupv1.VolumeGroupSnapshotClass {
	return all[*groupv1.VolumeGroupSnapshotClass](c, resolve.KindGroupSnapshotClass)
}

// GroupSnapshots lists the group snapshots by namespace and name.
func (c *Catalog) GroupSnapshots() []*groupv1.VolumeGroupSnapshot {
	return all[*groupv1.VolumeGroupSnapshot](c, resolve.KindGroupSnapshot)
}

// Claims lists the claims by namespace and name.
func (c *Catalog) Claims() []*corev1.PersistentVolumeClaim {
	return all[*corev1.PersistentVolumeClaim](c, resolve.KindClaim)
}

// Volumes lists the PersistentVolumes by name.
func (c *Catalog) Volumes() []*corev1.PersistentVolume {
	return all[*corev1.PersistentVolume](c, resolve.KindVolume)
}

// Sharing returns the first PersistentVolume that has the CSI volume id, unless its name is name or its
// claimRef names the claim.
func (c *Catalog) Sharing(id state.VolumeID, name string, claim Key) (volume Key, found bool) {
	for _, pv := range c.Volumes() {
		csi, ref := pv.Spec.CSI, pv.Spec.ClaimRef
		own := pv.Name == name || ref != nil && ref.Namespace == claim.Namespace && ref.Name == claim.Name
		if csi != nil && !own && state.SharedID(state.DriverName(csi.Driver), csi.VolumeHandle) == id {
			return Key{Kind: resolve.KindVolume, Name: pv.Name}, true
		}
	}
	return Key{}, false
}

// Classes the StorageClasses by name.
func (c *Catalog) Classes() []*storagev1.StorageClass {
	return all[*storagev1.StorageClass](c, resolve.KindClass)
}

// Pods lists the pods by namespace and name.
func (c *Catalog) Pods() []*corev1.Pod { return all[*corev1.Pod](c, resolve.KindPod) }

// TrustBundles lists the ClusterTrustBundles by name.
func (c *Catalog) TrustBundles() []*certificatesv1.ClusterTrustBundle {
	return all[*certificatesv1.ClusterTrustBundle](c, resolve.KindTrustBundle)
}

// all lists the objects of a kind, which have the type T, by namespace and name.
func all[T runtime.Object](c *Catalog, kind string) []T {
	objects := c.Objects(kind)
	typed := make([]T, len(objects))
	for i, o := range objects {
		typed[i] = o.(T)
	}
	return typed
}

// Objects lists the objects of a kind by namespace and name.
func (c *Catalog) Objects(kind string) []runtime.Object {
	c.mu.RLock()
	defer c.mu.RUnlock()
	objects := make([]runtime.Object, 0, len(c.objects[kind]))
	for _, key := range slices.SortedFunc(maps.Keys(c.objects[kind]), Key.Compare) {
		if o := c.holder(key); o != nil {
			objects = append(objects, o)
		}
	}
	return objects
}

// ClassOf returns the StorageClass that provisions the claim's volume, or nil: the one that the
// claim names or, if storageClassName is unset (not ""), the default class. Of several default
// classes it returns the newest and then the first by name, as Kubernetes does. It returns no default class
// while a class cannot be read.
func (c *Catalog) ClassOf(claim *corev1.PersistentVolumeClaim) *storagev1.StorageClass {
	if name := claim.Spec.StorageClassName; name != nil {
		class, _ := c.Get(Key{Kind: resolve.KindClass, Name: *name}).(*storagev1.StorageClass)
		return class
	}
	if len(c.Unreadable(resolve.KindClass)) > 0 {
		return nil // it may be the default
	}
	var found *storagev1.StorageClass
	for _, class := range c.Classes() {
		if class.Annotations[defaultClass] != "true" {
			continue
		}
		if found == nil || found.CreationTimestamp.Before(&class.CreationTimestamp) {
			found = class
		}
	}
	return found
}

// MissingClass says that the class of a claim that is to get a volume does not exist, and which do; "" if it exists, or
// if the claim asks for none.
func (c *Catalog) MissingClass(claim *corev1.PersistentVolumeClaim) (text string, cause state.Cause) {
	name := claim.Spec.StorageClassName
	switch {
	case claim.Spec.VolumeName != "" || name != nil && *name == "" || c.ClassOf(claim) != nil:
		return "", state.Cause{}
	case name == nil:
		text, cause.Code = "there is no default StorageClass", state.NoDefaultClass
		if hidden := c.Unreadable(resolve.KindClass); len(hidden) > 0 {
			return fmt.Sprintf("%s may be the default: %s", hidden[0], c.Unread(hidden[0])), cause
		}
	case c.Unread(Key{Kind: resolve.KindClass, Name: *name}) != "":
		return fmt.Sprintf("StorageClass %s: %s", *name, c.Unread(Key{Kind: resolve.KindClass, Name: *name})),
			state.Cause{Code: state.NoClass, Of: *name}
	default:
		text, cause = fmt.Sprintf("StorageClass %s not found", *name), state.Cause{Code: state.NoClass, Of: *name}
	}
	var names []string
	for _, class := range c.Classes() {
		names = append(names, class.Name)
	}
	return text + "; there are: " + JoinNames(names), cause
}

// OrVolume adds to the text of MissingClass what else ends the wait of a claim.
func OrVolume(text string, cause state.Cause) string {
	if cause.Code == state.NoDefaultClass {
		return text + " (a PersistentVolume without a class would do as well)"
	}
	return text + " (a PersistentVolume of that class would do as well)"
}

// maxNames limits the names that a sentence lists.
const maxNames = 10

// JoinNames lists names in a sentence.
func JoinNames(names []string) string {
	switch {
	case len(names) == 0:
		return "none"
	case len(names) > maxNames:
		return strings.Join(names[:maxNames], ", ") + ", ..."
	}
	return strings.Join(names, ", ")
}

// Problems lists the objects that several providers have, sorted, and the pods that ask for another pod's UID.
func (c *Catalog) Problems() []Problem {
	problems := c.contended()
	c.mu.RLock()
	defer c.mu.RUnlock()
	var several []Key
	for _, objects := range c.objects {
		for key, providers := range objects {
			_, held := c.holds.names[key.Name]
			_, owned := c.owned[key]
			if (len(providers) > 1 || owned && c.effective(key) == "") && !(held && key.Kind == resolve.KindVolume) {
				several = append(several, key)
			}
		}
	}
	slices.SortFunc(several, Key.Compare)
	for _, key := range several {
		providers := c.under(key)
		first := c.effective(key)
		for _, t := range slices.SortedFunc(slices.Values(providers), func(a, b provided) int {
			return cmp.Compare(a.provider, b.provider)
		}) {
			if t.provider != first {
				problems = append(problems, Problem{Provider: t.provider, Where: key.String(), Text: c.beside(key)})
			}
		}
	}
	return append(problems, c.uidProblems()...)
}

// Wants returns each pod's wants as last sent to the sink.
func (c *Catalog) Wants() map[state.PodUID]state.PodWant {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return maps.Clone(c.published)
}

// Asking reports whether the remote provider has yet to answer for an object that a pod names.
func (c *Catalog) Asking() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, keys := range c.remote.asked {
		for _, key := range keys {
			if c.holder(key) == nil && c.remote.unread(key) == notAsked {
				return true
			}
		}
	}
	return false
}
