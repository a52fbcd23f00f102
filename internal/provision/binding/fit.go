package binding

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// unfit returns why the volume cannot serve the claim, whose class is given, or "". The rules are
// those of Kubernetes' volume controller ("Persistent Volumes", section "Binding"). here returns
// why this node cannot use the volume.
func unfit(claim *corev1.PersistentVolumeClaim, class string, pv *corev1.PersistentVolume,
	here func(*corev1.PersistentVolume) error,
) string {
	has, asks := pv.Spec.Capacity.Storage(), claim.Spec.Resources.Requests.Storage()
	switch {
	case pv.Spec.StorageClassName != class:
		return fmt.Sprintf("its class is %q", pv.Spec.StorageClassName)
	case pv.DeletionTimestamp != nil:
		return "it is being deleted"
	case mode(pv.Spec.VolumeMode) != mode(claim.Spec.VolumeMode):
		return fmt.Sprintf("its volumeMode is %s", mode(pv.Spec.VolumeMode))
	case has.Cmp(*asks) < 0:
		return fmt.Sprintf("it has %s", has)
	case attributes(pv.Spec.VolumeAttributesClassName) != attributes(claim.Spec.VolumeAttributesClassName):
		return fmt.Sprintf("its volumeAttributesClassName is %q", attributes(pv.Spec.VolumeAttributesClassName))
	}
	for _, m := range claim.Spec.AccessModes {
		if !slices.Contains(pv.Spec.AccessModes, m) {
			return fmt.Sprintf("it has no access mode %s", m)
		}
	}
	if s := claim.Spec.Selector; s != nil {
		selector, err := metav1.LabelSelectorAsSelector(s)
		if err != nil {
			return fmt.Sprintf("the claim's selector cannot be read: %v", err)
		}
		if !selector.Matches(labels.Set(pv.Labels)) {
			return fmt.Sprintf("its labels do not match the claim's selector %s", metav1.FormatLabelSelector(s))
		}
	}
	if err := here(pv); err != nil {
		return err.Error()
	}
	return ""
}

func mode(m *corev1.PersistentVolumeMode) corev1.PersistentVolumeMode {
	if m == nil || *m == "" {
		return corev1.PersistentVolumeFilesystem
	}
	return *m
}

func attributes(name *string) string {
	if name == nil {
		return ""
	}
	return *name
}

// shown is the number of volumes that a note lists.
const shown = 3

// none returns the note for a claim that none of the volumes fits.
func none(claim claimOf, why []string) note {
	of := "without a class"
	if claim.class != "" {
		of = fmt.Sprintf("of class %q", claim.class)
	}
	switch {
	case len(why) == 0 && claim.missing.text != "":
		return note{source.OrVolume(claim.missing.text, claim.missing.cause), claim.missing.cause}
	case len(why) == 0:
		return noVolume("there is no PersistentVolume " + of)
	}
	more := ""
	if n := len(why) - shown; n > 0 {
		why, more = why[:shown], fmt.Sprintf("; and %d more", n)
	}
	return noVolume(fmt.Sprintf("no PersistentVolume %s fits: %s%s", of, strings.Join(why, "; "), more))
}
