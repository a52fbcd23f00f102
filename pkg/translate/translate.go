// Package translate converts the in-tree volume sources that Kubernetes removed
// (awsElasticBlockStore and others) to the CSI sources that replace them. It uses
// k8s.io/csi-translation-lib, and rules of its own for rbd and cephfs, which the library
// lacks. docs/reference/translation.md lists both field by field.
//
// It is pure and keeps no state. The library panics on input that any author of a pod
// can write (an inline vsphereVolume with a storagePolicyName, which is removed before
// the call), so every call recovers and returns a panic as an error.
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

// errPanic means that the library panicked or returned no CSI source.
var errPanic = errors.New("the translation of this source is broken")

// kinds are the field names of the sources that can be translated.
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

// Kinds returns the sorted field names, in a pod's spec.volumes and a PersistentVolume's
// spec, of the sources that can be translated.
func Kinds() []string { return append([]string(nil), kinds[:]...) }

// Has reports whether kind is one of Kinds.
func Has(kind string) bool { return slices.Contains(kinds[:], kind) }

// Volume returns a copy of pv with its CSI source. pv must have one of Kinds as its only
// source: with several the library picks one at random.
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
		csi.Spec.CSI.ReadOnly = s.PortworxVolume.ReadOnly // the library drops it
	}
	return csi, nil
}

// Inline converts a pod's inline source to a PersistentVolume with a CSI source;
// namespace is the pod's. The library chooses its name, which may be invalid for an
// object or a path. v must have one of Kinds as its only source.
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
		csi.Spec.CSI.ReadOnly = v.PortworxVolume.ReadOnly // the library drops it
	}
	return csi, nil
}

func recovered(translate func() (*corev1.PersistentVolume, error)) (pv *corev1.PersistentVolume, err error) {
	defer func() {
		if p := recover(); p != nil {
			pv, err = nil, fmt.Errorf("%w: %v", errPanic, p)
		}
	}()
	pv, err = translate()
	if err != nil {
		return nil, err
	}
	if pv.Spec.CSI == nil {
		return nil, fmt.Errorf("%w: the result has no CSI source", errPanic)
	}
	// The library sets no type, but programs that print the object need one.
	pv.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"}
	return pv, nil
}
