// Package translate turns the in-tree volume sources that left Kubernetes
// (awsElasticBlockStore and its like) into the CSI sources that serve them now,
// through k8s.io/csi-translation-lib; rbd and cephfs, which that does not have,
// by rules of its own. docs/reference/translation.md has both, field by field.
//
// It is pure and keeps no state. The library has panicked on what any author of a
// pod can write (an inline vsphereVolume with a storagePolicyName, which is kept
// from it here), so every call into it recovers and a panic comes back as an error.
package translate

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"
)

// ErrPanic is wrapped by the error of a translation that panicked.
var ErrPanic = errors.New("the translation of this source is broken")

// kinds are the sources that can be translated, by their field's name.
var kinds = [...]string{
	"awsElasticBlockStore",
	"azureDisk",
	"azureFile",
	"cephfs",
	"cinder",
	"gcePersistentDisk",
	"portworxVolume",
	"rbd",
	"vsphereVolume",
}

// Kinds lists, sorted, the names of the sources that can be translated, as they
// are written in a pod's spec.volumes and in a PersistentVolume's spec.
func Kinds() []string { return append([]string(nil), kinds[:]...) }

// Has reports whether a source of this kind, as Kinds names it, can be translated.
func Has(kind string) bool { return slices.Contains(kinds[:], kind) }

// Volume returns a copy of pv whose source is the CSI one. pv must have one of
// Kinds as its only source: with several the library picks one at random.
func Volume(pv *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	if pv.Spec.RBD != nil || pv.Spec.CephFS != nil {
		return cephVolume(pv)
	}
	s := asPod(pv.Spec.PersistentVolumeSource)
	if err := checkNames(s); err != nil {
		return nil, err
	}
	csi, err := recovered(func() (*corev1.PersistentVolume, error) {
		return csitranslation.New().TranslateInTreePVToCSI(klog.Logger{}, pv)
	})
	if err != nil {
		return nil, atField(s, err)
	}
	if s.PortworxVolume != nil {
		csi.Spec.CSI.ReadOnly = s.PortworxVolume.ReadOnly // the library loses it
	}
	return csi, nil
}

// Inline returns the PersistentVolume, with a CSI source, that stands for a
// pod's inline source; namespace is the pod's. Its name is the library's and
// not always one that an object or a path may have. v must have one of Kinds as
// its only source.
func Inline(v *corev1.Volume, namespace string) (*corev1.PersistentVolume, error) {
	if v.RBD != nil || v.CephFS != nil {
		return cephInline(v, namespace)
	}
	if err := checkNames(v.VolumeSource); err != nil {
		return nil, err
	}
	in, storagePolicy := v.DeepCopy(), ""
	if s := in.VsphereVolume; s != nil {
		storagePolicy, s.StoragePolicyName = s.StoragePolicyName, "" // the library panics
	}
	csi, err := recovered(func() (*corev1.PersistentVolume, error) {
		return csitranslation.New().TranslateInTreeInlineVolumeToCSI(klog.Logger{}, in, namespace)
	})
	if err != nil {
		return nil, atField(v.VolumeSource, err)
	}
	if storagePolicy != "" {
		csi.Spec.CSI.VolumeAttributes["storagepolicyname"] = storagePolicy
	}
	if v.PortworxVolume != nil {
		csi.Spec.CSI.ReadOnly = v.PortworxVolume.ReadOnly // the library loses it
	}
	return csi, nil
}

func recovered(translate func() (*corev1.PersistentVolume, error)) (pv *corev1.PersistentVolume, err error) {
	defer func() {
		if p := recover(); p != nil {
			pv, err = nil, fmt.Errorf("%w: %v", ErrPanic, p)
		}
	}()
	pv, err = translate()
	if err != nil {
		return nil, err
	}
	if pv.Spec.CSI == nil {
		return nil, fmt.Errorf("%w: no CSI source came of it", ErrPanic)
	}
	// The library fills in no type; a program that prints the object wants one.
	pv.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"}
	return pv, nil
}
