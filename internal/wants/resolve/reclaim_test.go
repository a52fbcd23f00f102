package resolve_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
)

// An unsupported reclaimPolicy is refused by name: none is taken for another one.
//
// Faults: A151.
func TestAReclaimPolicyIsFollowedOrRefused(t *testing.T) {
	for policy, want := range map[corev1.PersistentVolumeReclaimPolicy]string{
		"": "", corev1.PersistentVolumeReclaimDelete: "", corev1.PersistentVolumeReclaimRetain: "",
		corev1.PersistentVolumeReclaimRecycle: `found Recycle, want Delete or Retain`, "retain": `found retain, want Delete or Retain`,
	} {
		volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}}
		volume.Spec.PersistentVolumeReclaimPolicy = policy
		volume.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}
		for field, obj := range map[string]runtime.Object{
			"reclaimPolicy":                      &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Provisioner: "d", ReclaimPolicy: &policy},
			"spec.persistentVolumeReclaimPolicy": volume,
		} {
			got, want := "", want
			for _, f := range resolve.Check(obj) {
				got = f.String()
			}
			if policy == corev1.PersistentVolumeReclaimRecycle && obj == runtime.Object(volume) {
				want = "" // a cluster may have it from old times; it is taken as Retain
			}
			if want != "" && got != field+": "+want || want == "" && got != "" {
				t.Errorf("%q: got %q, want %q", policy, got, want)
			}
		}
	}
}
