//go:build cluster

package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// volume makes a volume of the array, and a claim with the same name that is bound to it.
func (a *array) volume(name string) {
	a.t.Helper()
	mode := corev1.PersistentVolumeFilesystem
	size := corev1.ResourceList{"storage": resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	_, err := control.client.CoreV1().PersistentVolumes().Create(a.t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: a.name, Capacity: size, AccessModes: modes, VolumeMode: &mode, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:               &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: "default", Name: name},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: a.name, VolumeHandle: name}},
		},
	}, metav1.CreateOptions{})
	must(a.t, err)
	_, err = control.client.CoreV1().PersistentVolumeClaims("default").Create(a.t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &a.name, VolumeName: name, AccessModes: modes, Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
	}, metav1.CreateOptions{})
	must(a.t, err)
}

// fromClaim returns a pod's volume that uses the claim.
func fromClaim(name string) corev1.Volume {
	return corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
}

// podWith returns a pod that uses the volumes. The scheduler places it, on the node if node
// is not "".
func podWith(node, name string, volumes ...corev1.Volume) *corev1.Pod {
	no, zero := false, int64(0)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: &no, TerminationGracePeriodSeconds: &zero, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{Name: "c", Image: "none"}}, Volumes: volumes,
		},
	}
	if node != "" {
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	}
	for _, v := range volumes {
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
	return p
}

func createPod(t *testing.T, p *corev1.Pod) {
	t.Helper()
	if _, err := control.client.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// deletePod deletes the pod at once, as if its containers had ended.
func deletePod(t *testing.T, name string) {
	t.Helper()
	zero := int64(0)
	if err := control.client.CoreV1().Pods("default").Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
}

// at waits until the pod has its volumes, and returns the path of one.
func (n *node) at(pod, volume string) string {
	n.t.Helper()
	n.mounted(pod)
	mounts, err := n.api.Mounts(n.t.Context(), "default", pod)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, m := range mounts {
		if m.Name == volume {
			return m.HostPath
		}
	}
	n.t.Fatalf("pod %s has no volume %s: %v", pod, volume, mounts)
	return ""
}
