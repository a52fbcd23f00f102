// Package objects makes the API objects of a workload: the same for the fake API server,
// the kubelet and every other system under test.
package objects

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/hack/bench/internal/benchdef"
)

// Names used by every object.
const (
	NodeName  = "bench-node"
	Namespace = "default"
)

func ptr[T any](v T) *T { return &v }

// PodName is the name of pod p.
func PodName(p int) string { return fmt.Sprintf("pod-%05d", p) }

// Cluster returns the objects that do not depend on pods.
func Cluster() []runtime.Object {
	return []runtime.Object{
		&v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: NodeName, UID: "node-uid", Labels: map[string]string{"kubernetes.io/hostname": NodeName}},
			Status:     v1.NodeStatus{Allocatable: v1.ResourceList{v1.ResourceMemory: resource.MustParse("16Gi"), v1.ResourceCPU: resource.MustParse("2")}},
		},
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: benchdef.DriverName, UID: "drv-uid"}, Spec: storagev1.CSIDriverSpec{
			AttachRequired: ptr(false), PodInfoOnMount: ptr(false), FSGroupPolicy: ptr(storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy),
			VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent},
			StorageCapacity:      ptr(false), RequiresRepublish: ptr(false), SELinuxMount: ptr(false),
		}},
		&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: Namespace, UID: "sa-uid"}},
		&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt", Namespace: Namespace, UID: "ca-uid"}, Data: map[string]string{"ca.crt": strings.Repeat("c", 1100)}},
	}
}

// Driver returns the CSIDriver object.
func Driver() runtime.Object {
	for _, o := range Cluster() {
		if d, ok := o.(*storagev1.CSIDriver); ok {
			return d
		}
	}
	return nil
}

// CSI returns the PVs and PVCs of pod p with n volumes, and the pod.
func CSI(p, n int) (*v1.Pod, []runtime.Object) {
	pod := basePod(p)
	var objs []runtime.Object
	for v := 0; v < n; v++ {
		id := benchdef.VolID(p, v)
		pvc := &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + id, Namespace: Namespace, UID: types.UID("uid-" + id)},
			Spec: v1.PersistentVolumeClaimSpec{
				AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, VolumeName: "pv-" + id, VolumeMode: ptr(v1.PersistentVolumeFilesystem),
				StorageClassName: ptr("bench"), Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}},
			},
			Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, Capacity: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}},
		}
		pv := &v1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pv-" + id, UID: types.UID("pvuid-" + id)},
			Spec: v1.PersistentVolumeSpec{
				Capacity: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
				ClaimRef:         &v1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: Namespace, Name: pvc.Name, UID: pvc.UID},
				StorageClassName: "bench", VolumeMode: ptr(v1.PersistentVolumeFilesystem), PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimDelete,
				PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
					Driver: benchdef.DriverName, VolumeHandle: id, FSType: "ext4",
					VolumeAttributes: map[string]string{"storage.kubernetes.io/csiProvisionerIdentity": "1700000000000-8081-bench"},
				}},
			},
			Status: v1.PersistentVolumeStatus{Phase: v1.VolumeBound},
		}
		objs = append(objs, pv, pvc)
		addVolume(pod, fmt.Sprintf("data-%d", v), v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: pvc.Name}})
	}
	return pod, objs
}

// InTree returns pod p with a configMap, a secret, an emptyDir and the projected volume
// that every pod gets, and its objects. gen changes the data.
func InTree(p, gen int) (*v1.Pod, []runtime.Object) {
	pod := basePod(p)
	cm, sec := ConfigMap(p, gen), &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("sec-%05d", p), Namespace: Namespace, UID: types.UID(fmt.Sprintf("sec-uid-%05d", p))},
		Data:       map[string][]byte{"a": make([]byte, 100), "b": make([]byte, 100)}, Type: v1.SecretTypeOpaque,
	}
	addVolume(pod, "cm", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: cm.Name}, DefaultMode: ptr(int32(0o644))}})
	addVolume(pod, "sec", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: sec.Name, DefaultMode: ptr(int32(0o644))}})
	addVolume(pod, "empty", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}})
	addVolume(pod, "kube-api-access", v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{DefaultMode: ptr(int32(0o644)), Sources: []v1.VolumeProjection{
		{ServiceAccountToken: &v1.ServiceAccountTokenProjection{ExpirationSeconds: ptr(int64(3607)), Path: "token"}},
		{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []v1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
		{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{{Path: "namespace", FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}}}}},
	}}})
	return pod, []runtime.Object{cm, sec}
}

// ConfigMap returns the configMap of pod p with data of generation gen.
func ConfigMap(p, gen int) *v1.ConfigMap {
	return &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("cm-%05d", p), Namespace: Namespace, UID: types.UID(fmt.Sprintf("cm-uid-%05d", p))},
		Data:       map[string]string{"a": fmt.Sprintf("gen-%d", gen), "b": strings.Repeat("x", 100)},
	}
}

func basePod(p int) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: PodName(p), Namespace: Namespace, UID: types.UID(benchdef.PodUID(p)), Labels: map[string]string{"app": "bench"}},
		Spec:       v1.PodSpec{NodeName: NodeName, ServiceAccountName: "default", Containers: []v1.Container{{Name: "c", Image: "i"}}},
	}
}

func addVolume(pod *v1.Pod, name string, s v1.VolumeSource) {
	pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: s})
	c := &pod.Spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: name, MountPath: "/" + name})
}
