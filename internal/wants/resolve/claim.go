package resolve

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// protection is the finalizer that keeps a claim while a pod uses it.
const protection = "kubernetes.io/pvc-protection"

// claimUse is a pod's volume that names a claim.
type claimUse struct {
	use
	// volume is the pod's name for the volume; name is the claim's.
	volume   string
	name     string
	readOnly bool
	// owned is set for a generic ephemeral volume, whose claim is made for this pod.
	owned bool
}

// claimed resolves a volume of the pod that names a claim. It makes the kubelet's
// checks in the kubelet's order (desired_state_of_world_populator.go).
func (r *resolver) claimed(u claimUse) (state.VolumeWant, error) {
	claim, err := r.claim(u)
	if err != nil {
		return state.VolumeWant{}, err
	}
	pv, err := r.bound(claim)
	if err != nil {
		return state.VolumeWant{}, err
	}
	if _, ok := r.ours(pv); ok {
		return r.builtinVolume(pv, claim, u)
	}
	csi, err := r.asCSI(pv)
	if err != nil {
		return state.VolumeWant{}, err
	}
	w, err := r.persistent(csi, claim, u)
	w.Spec.Migrated = csi != pv
	return w, err
}

// claim returns the claim, or an error if this pod may not use it.
func (r *resolver) claim(u claimUse) (*corev1.PersistentVolumeClaim, error) {
	key := Key{KindClaim, r.pod.Namespace, u.name}
	claim, ok := r.objects.Get(key).(*corev1.PersistentVolumeClaim)
	if !ok {
		if err := r.unread(key); err != nil {
			return nil, err
		}
		if u.owned {
			return nil, r.notMade(key)
		}
		return nil, fmt.Errorf("%s: not found", key)
	}
	if u.owned && !metav1.IsControlledBy(claim, r.pod) {
		return nil, fmt.Errorf("%s: metadata.ownerReferences: found %s, want %s (uid %s) with controller: true, since it "+
			"serves a generic ephemeral volume",
			key, controllerOf(claim), r.name(), r.pod.UID)
	}
	if claim.DeletionTimestamp != nil && !slices.Contains(claim.Finalizers, protection) {
		return nil, because(state.ClaimGoes, "", fmt.Errorf("%s: being deleted since %s (metadata.deletionTimestamp)", key,
			claim.DeletionTimestamp.UTC().Format("2006-01-02T15:04:05Z")))
	}
	if p := claim.Status.Phase; p != "" && p != corev1.ClaimBound {
		if err := r.noted(key); err != nil {
			return nil, err
		}
		return nil, because(state.ClusterBinds, "",
			fmt.Errorf("%s: not bound: status.phase: found %s, want Bound", key, show(string(p))))
	}
	return claim, nil
}

// noted returns what the claim waits for as an error, or nil if that is not known.
func (r *resolver) noted(claim Key) error {
	b := r.objects.Binding(claim)
	if b.Note == "" {
		return nil
	}
	return because(b.Cause.Code, b.Cause.Of, fmt.Errorf("%s: not bound yet: %s", claim, b.Note))
}

func controllerOf(claim *corev1.PersistentVolumeClaim) string {
	owner := metav1.GetControllerOf(claim)
	if owner == nil {
		return "no controller"
	}
	return fmt.Sprintf("%s %s (uid %s)", show(owner.Kind), show(owner.Name), show(string(owner.UID)))
}

// VolumeOf returns the volume that the claim is bound to, by the rules that hold for a
// pod's claim. If there is none, or if claim and volume disagree, the error says why; cause
// is the same for programs.
func VolumeOf(claim *corev1.PersistentVolumeClaim, o Objects) (
	pv *corev1.PersistentVolume, cause state.Cause, err error,
) {
	r := resolver{objects: o}
	if pv, err = r.bound(claim); err == nil {
		return pv, state.Cause{}, nil
	}
	if c, ok := errors.AsType[causeError](err); ok {
		cause = c.cause
	}
	return nil, cause, err
}

// RefNames reports whether the volume's claimRef names the claim, and not an earlier claim
// of the same name.
func RefNames(pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	return pv.Spec.ClaimRef != nil && refMismatch(pv, claim) == nil
}

// bound returns the volume that the claim is bound to. An error without a cause of its own is about
// the volume that the claim names, or that names the claim.
func (r *resolver) bound(claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, error) {
	pv, err := r.volumeOf(claim)
	if err == nil {
		return pv, nil
	}
	if _, has := errors.AsType[causeError](err); !has && !errors.Is(err, errUnread) {
		err = because(state.NoVolume, "", err)
	}
	return nil, err
}

// volumeOf is bound. In a cluster, claim and volume name each other. Without one it is
// enough that either names the other, if no other claim has or had the volume ([Owner]),
// and no second claim or volume does the same before one has it.
func (r *resolver) volumeOf(claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, error) {
	key := Key{KindClaim, claim.Namespace, claim.Name}
	name := claim.Spec.VolumeName
	if name == "" {
		if claim.Status.Phase == corev1.ClaimBound {
			return nil, fmt.Errorf("%s: spec.volumeName: found none, want the volume's name, since status.phase is Bound", key)
		}
		if b := r.objects.Binding(key); b.Volume != "" {
			return r.chosen(claim, b)
		}
		return r.volumeByRef(claim)
	}
	pv, ok := r.objects.Get(Key{Kind: KindVolume, Name: name}).(*corev1.PersistentVolume)
	if !ok {
		if err := r.unread(Key{Kind: KindVolume, Name: name}); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%s: spec.volumeName: found %s, but there is no such volume", key, show(name))
	}
	if pv.Spec.ClaimRef != nil {
		return pv, refMismatch(pv, claim)
	}
	if claim.Status.Phase == corev1.ClaimBound {
		return nil, fmt.Errorf("%s: spec.claimRef: found none, want %s, which is bound to it", volumeKey(pv), key)
	}
	owner, claims := r.objects.Holders(name)
	switch {
	case owner == (Owner{}):
	case owner.Unreadable != "" || owner.Storage == Storage(pv):
		if why := owner.Refuses(name, owner.Storage, claim); why != "" {
			return nil, fmt.Errorf("%s: %s", volumeKey(pv), why)
		}
		return pv, nil
	}
	if len(claims) > 1 {
		var names []string
		for _, c := range claims {
			names = append(names, c.Namespace+"/"+c.Name)
		}
		return nil, fmt.Errorf("%s: claims %s all name it in spec.volumeName; want its spec.claimRef to say which one has it",
			volumeKey(pv), strings.Join(names, ", "))
	}
	return pv, nil
}

// chosen returns the volume of binding b, which csi-volmgr chose for the claim.
func (r *resolver) chosen(c *corev1.PersistentVolumeClaim, b Binding) (*corev1.PersistentVolume, error) {
	claim := Key{KindClaim, c.Namespace, c.Name}
	pv, ok := r.objects.Get(Key{Kind: KindVolume, Name: b.Volume}).(*corev1.PersistentVolume)
	switch {
	case !ok && r.unread(Key{Kind: KindVolume, Name: b.Volume}) != nil:
		return nil, r.unread(Key{Kind: KindVolume, Name: b.Volume})
	case !ok:
		return nil, fmt.Errorf("%s: its volume %s no longer exists; apply it again, or delete the claim", claim,
			show(b.Volume))
	case Storage(pv) != b.Storage:
		return nil, fmt.Errorf("%s: the source of %s has changed since it was chosen for the claim; restore the source, or "+
			"delete the claim", claim, volumeKey(pv))
	case pv.Spec.ClaimRef != nil && (pv.Spec.ClaimRef.Namespace != c.Namespace || pv.Spec.ClaimRef.Name != c.Name):
		return nil, fmt.Errorf("%s: its volume %s names claim %s/%s in spec.claimRef; remove that, or delete the claim",
			claim, show(b.Volume), pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name)
	}
	return pv, nil
}

// Storage returns a hash of the volume's source: equal for two volumes that name
// the same storage.
func Storage(pv *corev1.PersistentVolume) string {
	b, err := json.Marshal(pv.Spec.PersistentVolumeSource)
	if err != nil { // these types hold strings, numbers and booleans
		panic(fmt.Sprintf("encode the source of volume %s: %v", pv.Name, err))
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// volumeByRef returns the one volume whose claimRef names the claim.
func (r *resolver) volumeByRef(claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, error) {
	key := Key{KindClaim, claim.Namespace, claim.Name}
	var fit []*corev1.PersistentVolume
	var names []string
	var mismatch error
	for _, pv := range r.objects.VolumesOf(claim.Namespace, claim.Name) {
		if err := refMismatch(pv, claim); err != nil {
			mismatch = err
			continue
		}
		fit = append(fit, pv)
		names = append(names, pv.Name)
	}
	switch {
	case len(fit) == 1:
		return fit[0], nil
	case len(fit) > 1:
		return nil, fmt.Errorf("%s: volumes %s all name it in spec.claimRef; "+
			"want its spec.volumeName to say which one it has",
			key, strings.Join(names, ", "))
	case mismatch != nil:
		return nil, mismatch
	}
	return nil, r.unbound(claim)
}

// NoProvisioner is the provisioner of a StorageClass that makes no volumes.
const NoProvisioner = "kubernetes.io/no-provisioner"

// wantVolumeName says how to bind a claim to an existing volume.
const wantVolumeName = "to use an existing PersistentVolume, name it in spec.volumeName, or the claim in its " +
	"spec.claimRef"

// Unsupported returns the first field of a claim that csi-volmgr cannot honour when it
// provisions a volume, and whether there is one. Without the check the claim would
// get a volume that lacks what the field asks for, or that has an invalid name.
func Unsupported(claim *corev1.PersistentVolumeClaim) (Fault, bool) {
	if uid := string(claim.UID); uid != "" { // the volume is named after it
		if f, bad := checkSubdomain("metadata.uid", uid); bad {
			return f, true
		}
	}
	if s := claim.Spec.Selector; s != nil {
		return Fault{
			"spec.selector", metav1.FormatLabelSelector(s), "none, since a volume that is made for a claim has no labels; " +
				wantVolumeName,
		}, true
	}
	return Fault{}, false
}

// checkAttributesClass makes the API server's checks (storage.k8s.io/v1).
func checkAttributesClass(c *storagev1.VolumeAttributesClass) []Fault {
	var faults []Fault
	if f, bad := checkDriver("driverName", c.DriverName); bad {
		faults = append(faults, f)
	}
	if len(c.Parameters) == 0 {
		faults = append(faults, Fault{"parameters", "none", "at least one parameter for the driver to change"})
	}
	return faults
}

// unbound returns an error that says why the claim has no volume.
func (r *resolver) unbound(claim *corev1.PersistentVolumeClaim) error {
	key := Key{KindClaim, claim.Namespace, claim.Name}
	if err := r.noted(key); err != nil {
		return err
	}
	name := claim.Spec.StorageClassName
	if name == nil || *name == "" {
		return because(state.NoVolume, "",
			fmt.Errorf("%s: not bound yet: no volume without a class was chosen for it; %s", key, wantVolumeName))
	}
	class, ok := r.objects.Get(Key{Kind: KindClass, Name: *name}).(*storagev1.StorageClass)
	if err := r.unread(Key{Kind: KindClass, Name: *name}); !ok && err != nil {
		return because(state.NoClass, *name, err)
	}
	if !ok {
		return because(state.NoClass, *name, fmt.Errorf("%s: not bound: spec.storageClassName: found %s, but there is no "+
			"such class; %s", key, show(*name), wantVolumeName))
	}
	if class.Provisioner == NoProvisioner {
		return because(state.NoVolume, "", fmt.Errorf("%s: not bound yet: class %s makes no volumes (provisioner %s), and "+
			"none was chosen for it; %s", key, show(*name), NoProvisioner, wantVolumeName))
	}
	if f, bad := Unsupported(claim); bad {
		return because(state.BadClaim, "", fmt.Errorf("%s: %s", key, f))
	}
	return because("", "", fmt.Errorf("%s: not bound yet: driver %s is to make a volume of class %s", key,
		show(class.Provisioner), show(*name)))
}

// refMismatch returns an error if the volume's claimRef does not name this claim.
func refMismatch(pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) error {
	ref := pv.Spec.ClaimRef
	key := Key{KindClaim, claim.Namespace, claim.Name}
	if ref.Namespace != claim.Namespace || ref.Name != claim.Name {
		return fmt.Errorf("%s: spec.claimRef: found %s, want %s, whose spec.volumeName names this volume",
			volumeKey(pv), Key{KindClaim, ref.Namespace, ref.Name}, key)
	}
	if ref.UID != "" && ref.UID != claim.UID {
		return fmt.Errorf("%s: spec.claimRef.uid: found %s, want %s, the uid of %s",
			volumeKey(pv), show(string(ref.UID)), show(string(claim.UID)), key)
	}
	return nil
}

func volumeKey(pv *corev1.PersistentVolume) Key { return Key{Kind: KindVolume, Name: pv.Name} }
