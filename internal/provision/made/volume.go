package made

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// PersistentVolume returns a volume of the controller as a PersistentVolume.
func PersistentVolume(v controller.Volume) *corev1.PersistentVolume {
	mode := corev1.PersistentVolumeMode(v.Mode)
	pv := &corev1.PersistentVolume{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: resolve.KindVolume},
		ObjectMeta: metav1.ObjectMeta{Name: v.Name, Annotations: map[string]string{
			resolve.NodeSizeAnnotation: strconv.FormatInt(v.NodeBytes, 10),
		}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(v.CapacityBytes,
				resource.BinarySI)},
			ClaimRef: &corev1.ObjectReference{
				Kind: resolve.KindClaim, Namespace: v.Claim.Namespace,
				Name: v.Claim.Name, UID: types.UID(v.ClaimUID),
			},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimPolicy(v.ReclaimPolicy),
			StorageClassName:              v.Class, MountOptions: v.MountOptions, VolumeMode: &mode,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: string(v.Driver), VolumeHandle: v.Handle, FSType: v.FSType, VolumeAttributes: v.Context,
				ControllerPublishSecretRef: secretRef(v.AttachSecret), NodeStageSecretRef: secretRef(v.StageSecret),
				NodePublishSecretRef: secretRef(v.PublishSecret), NodeExpandSecretRef: secretRef(v.NodeExpandSecret),
			}},
		},
	}
	if v.AttributesClass != "" {
		pv.Spec.VolumeAttributesClassName = &v.AttributesClass
	}
	for _, m := range v.AccessModes {
		pv.Spec.AccessModes = append(pv.Spec.AccessModes, corev1.PersistentVolumeAccessMode(m))
	}
	return pv
}

func secretRef(r state.SecretRef) *corev1.SecretReference {
	if r == (state.SecretRef{}) {
		return nil
	}
	return &corev1.SecretReference{Namespace: r.Namespace, Name: r.Name}
}
