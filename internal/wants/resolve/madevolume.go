package resolve

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// CheckMade returns what is says otherwise than made, the PersistentVolume of its name that
// csi-volmgr made for a claim. What is leaves out does not count. A smaller capacity is that
// of an earlier time. The reclaim policy may differ: it may be changed.
func CheckMade(made, is *corev1.PersistentVolume) []Fault {
	var faults []Fault
	say := func(field, found, want string) {
		if found != "" && found != want {
			if want == "" {
				want = "none"
			}
			faults = append(faults, Fault{field, found, want})
		}
	}
	csi := is.Spec.CSI
	if csi == nil {
		csi = &corev1.CSIPersistentVolumeSource{}
		say("spec", "no csi", fmt.Sprintf("csi with driver %s and volumeHandle %s", made.Spec.CSI.Driver,
			show(made.Spec.CSI.VolumeHandle)))
	}
	checkMadeSource(made.Spec.CSI, csi, say)
	if got, has := is.Spec.Capacity.Storage(), made.Spec.Capacity.Storage(); got.Cmp(*has) > 0 {
		say("spec.capacity.storage", got.String(), "at most "+has.String()+"; a larger claim makes it larger")
	}
	say("spec.accessModes", sortedModes(is.Spec.AccessModes), sortedModes(made.Spec.AccessModes))
	if ref, has := is.Spec.ClaimRef, made.Spec.ClaimRef; ref != nil {
		say("spec.claimRef", ref.Namespace+"/"+ref.Name, has.Namespace+"/"+has.Name)
		say("spec.claimRef.uid", string(ref.UID), string(has.UID))
	}
	say("spec.storageClassName", is.Spec.StorageClassName, made.Spec.StorageClassName)
	found, want := optionKeys(is.Spec.MountOptions...), optionKeys(made.Spec.MountOptions...)
	if found == want && !slices.Equal(is.Spec.MountOptions, made.Spec.MountOptions) {
		found = "other values"
	}
	say("spec.mountOptions", found, want)
	say("spec.volumeMode", value(is.Spec.VolumeMode), value(made.Spec.VolumeMode))
	say("spec.volumeAttributesClassName", value(is.Spec.VolumeAttributesClassName),
		value(made.Spec.VolumeAttributesClassName))
	if a := is.Spec.NodeAffinity; a != nil && !equality.Semantic.DeepEqual(a, made.Spec.NodeAffinity) {
		say("spec.nodeAffinity", "one", "")
	}
	return faults
}

// checkMadeSource compares the CSI sources of CheckMade.
func checkMadeSource(made, is *corev1.CSIPersistentVolumeSource, say func(field, found, want string)) {
	say("spec.csi.driver", is.Driver, made.Driver)
	say("spec.csi.volumeHandle", is.VolumeHandle, made.VolumeHandle)
	say("spec.csi.fsType", is.FSType, made.FSType)
	if is.ReadOnly != made.ReadOnly {
		say("spec.csi.readOnly", fmt.Sprint(is.ReadOnly), fmt.Sprint(made.ReadOnly))
	}
	if len(is.VolumeAttributes) > 0 && !equality.Semantic.DeepEqual(is.VolumeAttributes, made.VolumeAttributes) {
		say("spec.csi.volumeAttributes", "others", "those that the driver answered")
	}
	for _, s := range []struct {
		field    string
		is, made *corev1.SecretReference
	}{
		{"controllerPublishSecretRef", is.ControllerPublishSecretRef, made.ControllerPublishSecretRef},
		{"nodeStageSecretRef", is.NodeStageSecretRef, made.NodeStageSecretRef},
		{"nodePublishSecretRef", is.NodePublishSecretRef, made.NodePublishSecretRef},
		{"controllerExpandSecretRef", is.ControllerExpandSecretRef, made.ControllerExpandSecretRef},
		{"nodeExpandSecretRef", is.NodeExpandSecretRef, made.NodeExpandSecretRef},
	} {
		say("spec.csi."+s.field, secretName(s.is), secretName(s.made))
	}
}

func secretName(r *corev1.SecretReference) string {
	if r == nil {
		return ""
	}
	return r.Namespace + "/" + r.Name
}

// value returns what s points to, or "".
func value[S ~string](s *S) string {
	if s == nil {
		return ""
	}
	return string(*s)
}

func sortedModes(modes []corev1.PersistentVolumeAccessMode) string {
	var all []string
	for _, m := range modes {
		all = append(all, string(m))
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}
