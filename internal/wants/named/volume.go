package named

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// Annotations of a claim that a front end created. internal/provision/made applies them instead of the
// claim's class.
const (
	ReclaimAnnotation      = "csi-volmgr.dev/reclaim-policy"
	FSTypeAnnotation       = "csi-volmgr.dev/fs-type"
	MountOptionsAnnotation = "csi-volmgr.dev/mount-options"
)

// FrontEndLabel is a label of this source's pods. Its value is the front end of the volume.
const FrontEndLabel = "csi-volmgr.dev/front-end"

// Names in the pod that uses a named volume.
const (
	podVolume    = "data"
	podContainer = "users"
)

// Volume is the row of one named volume. The journal contains it as JSON.
type Volume struct {
	// Name is the volume's name in the front ends.
	Name string `json:"name"`
	// FrontEnd is the front end that created the volume.
	FrontEnd string `json:"frontEnd"`
	// Tenant is Nomad's namespace; "" for other front ends, and for volumes of an earlier version until Nomad
	// names them again.
	Tenant  string    `json:"tenant,omitempty"`
	Options Options   `json:"options"`
	Created time.Time `json:"created"`

	// Boot is the boot for which Listed and Uses are valid.
	Boot string `json:"boot,omitempty"`
	// Listed means that the volume's pod is in the catalog.
	Listed bool `json:"listed,omitempty"`
	// Uses counts, by the front end's id, the mounts that it received and has not ended.
	Uses map[string]int `json:"uses,omitempty"`
	// Engines are, by the same ids, the processes that asked last for these mounts, as far as they are known.
	Engines map[string]Engine `json:"engines,omitempty"`
	// Standing means that the volume stays mounted until it is removed, across boots.
	Standing bool `json:"standing,omitempty"`
	// Path is the last path that users received.
	Path string `json:"path,omitempty"`
	// Removing means that the volume is being removed and accepts no new use.
	Removing bool `json:"removing,omitempty"`
	// Owns means that the volume owns the keys of its claim and pod. Volumes of earlier versions did not.
	Owns bool `json:"owns,omitempty"`
	// RemovedBy says, for the audit log, who asked for the removal.
	RemovedBy string `json:"removedBy,omitempty"`
	// From is the claim from which the volume's data is being moved to its own; "" once it is there.
	From string `json:"from,omitempty"`
}

// useCount returns the number of counted uses.
func (v Volume) useCount() int {
	n := 0
	for _, c := range v.Uses {
		n += c
	}
	return n
}

// withUse returns v with one more use by id (by is 1) or one less (-1). A count does not go below
// zero.
func (v Volume) withUse(id string, by int) Volume {
	uses := map[string]int{}
	maps.Copy(uses, v.Uses)
	uses[id] = max(uses[id]+by, 0)
	if uses[id] == 0 {
		delete(uses, id)
		v = v.withEngine(id, Engine{})
	}
	v.Uses = uses
	return v
}

// atBoot returns v as of the given boot. A reboot ends every mount and so every use.
func (v Volume) atBoot(boot string) Volume {
	if v.Boot != boot {
		v.Boot, v.Uses, v.Engines, v.Listed, v.Path = boot, nil, nil, v.Standing, ""
	}
	return v
}

func decode(name string, value []byte) (Volume, error) {
	var v Volume
	if err := json.Unmarshal(value, &v); err != nil {
		return Volume{}, err
	}
	if v.Name != name {
		return Volume{}, fmt.Errorf("found volume %q under the key of another", v.Name)
	}
	return v, v.check()
}

// check returns the first fault of the volume's objects.
func (v Volume) check() error {
	for _, obj := range append(v.claimObjects(), runtime.Object(v.pod())) {
		for _, f := range resolve.Check(obj) {
			return errors.New(f.String())
		}
	}
	return nil
}

func (v Volume) claimKey() source.Key {
	return source.Key{Kind: resolve.KindClaim, Namespace: v.Options.Namespace, Name: v.Options.Claim}
}

func (v Volume) podKey() source.Key {
	name := v.FrontEnd + "." + strings.NewReplacer("_", "-", "/", ".").Replace(v.Name)
	return source.Key{Kind: resolve.KindPod, Namespace: v.Options.Namespace, Name: name}
}

// claimObjects returns the claim, and the PersistentVolume of a static volume. It returns nothing
// if the claim belongs to another source.
func (v Volume) claimObjects() []runtime.Object {
	o := v.Options
	if o.Existing {
		return nil
	}
	key := v.claimKey()
	capacity := corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(o.SizeBytes, resource.BinarySI)}
	claim := &corev1.PersistentVolumeClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: resolve.KindClaim},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, UID: resolve.UID(key), Annotations: v.annotations(),
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{o.AccessMode},
			Resources:   corev1.VolumeResourceRequirements{Requests: capacity},
		},
	}
	if o.LimitBytes > 0 {
		claim.Spec.Resources.Limits = corev1.ResourceList{
			corev1.ResourceStorage: *resource.NewQuantity(o.LimitBytes, resource.BinarySI),
		}
	}
	if o.Driver == "" {
		if o.Class != "" {
			claim.Spec.StorageClassName = &o.Class
		}
		return []runtime.Object{claim}
	}
	claim.Annotations, claim.Spec.StorageClassName, claim.Spec.VolumeName = v.mark(), new(string), v.volumeName()
	return []runtime.Object{claim, &corev1.PersistentVolume{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: resolve.KindVolume},
		ObjectMeta: metav1.ObjectMeta{Name: v.volumeName()},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: capacity, AccessModes: slices.Clone(claim.Spec.AccessModes),
			MountOptions:                  slices.Clone(o.MountOptions),
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef: &corev1.ObjectReference{
				Kind: resolve.KindClaim, Namespace: key.Namespace, Name: key.Name, UID: claim.UID,
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: o.Driver, VolumeHandle: o.Handle, FSType: o.FSType, VolumeAttributes: o.Attributes,
			}},
		},
	}}
}

// volumeName returns the name of a static volume's PersistentVolume.
func (v Volume) volumeName() string { return v.Options.Namespace + "." + v.Options.Claim }

// mark returns the annotation that names the volume.
func (v Volume) mark() map[string]string {
	return map[string]string{VolumeAnnotation: v.full().annotation()}
}

func (v Volume) annotations() map[string]string {
	a := v.mark()
	a[ReclaimAnnotation] = string(corev1.PersistentVolumeReclaimRetain)
	if v.Options.Delete {
		a[ReclaimAnnotation] = string(corev1.PersistentVolumeReclaimDelete)
	}
	if v.Options.FSType != "" {
		a[FSTypeAnnotation] = v.Options.FSType
	}
	if len(v.Options.MountOptions) > 0 {
		list, _ := json.Marshal(v.Options.MountOptions) // strings can always be encoded
		a[MountOptionsAnnotation] = string(list)
	}
	return a
}

// pod returns the pod whose only container represents all users of the volume.
func (v Volume) pod() *corev1.Pod {
	key := v.podKey()
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: resolve.KindPod},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name, UID: v.podUID(), Labels: map[string]string{FrontEndLabel: v.FrontEnd},
			Annotations: v.mark(),
		},
		Spec: corev1.PodSpec{
			Volumes: []corev1.Volume{{Name: podVolume, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.Options.Claim},
			}}},
			Containers: []corev1.Container{{
				Name: podContainer,
				VolumeMounts: []corev1.VolumeMount{{
					Name: podVolume, MountPath: "/data", SubPath: v.Options.Subdir,
				}},
			}},
		},
	}
}

func (v Volume) podUID() types.UID { return resolve.UID(v.podKey()) }
