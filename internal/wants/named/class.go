package named

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// fsTypeParameter is the class parameter for the file system of its volumes (external-provisioner).
const fsTypeParameter = "csi.storage.k8s.io/fstype"

// ClassOf returns a copy of the class for a claim of this source. In it, the claim's own reclaim
// policy, file system and mount options replace the class's. An error means that an annotation is
// malformed.
func ClassOf(class *storagev1.StorageClass, claim *corev1.PersistentVolumeClaim) (*storagev1.StorageClass, error) {
	own := class.DeepCopy()
	if policy, ok := claim.Annotations[ReclaimAnnotation]; ok {
		own.ReclaimPolicy = new(corev1.PersistentVolumeReclaimPolicy(policy))
	}
	if fsType, ok := claim.Annotations[FSTypeAnnotation]; ok {
		own.Parameters = maps.Clone(own.Parameters)
		if own.Parameters == nil {
			own.Parameters = map[string]string{}
		}
		parameter := fsTypeParameter
		for key := range own.Parameters {
			if strings.EqualFold(key, "fstype") {
				parameter = key
			}
		}
		own.Parameters[parameter] = fsType
	}
	if list, ok := claim.Annotations[MountOptionsAnnotation]; ok {
		own.MountOptions = nil
		if err := json.Unmarshal([]byte(list), &own.MountOptions); err != nil {
			return nil, fmt.Errorf("annotation %s of claim %s/%s: %w", MountOptionsAnnotation, claim.Namespace, claim.Name, err)
		}
	}
	return own, nil
}
