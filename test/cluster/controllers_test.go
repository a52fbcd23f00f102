//go:build cluster

package cluster

import (
	"context"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

const driverName = "local.csi-volmgr.dev"

// each calls f for every object there is and for every one that changes, for as
// long as the process lives: a watch that ends, as with its server, is made again.
func each(start func(context.Context) (watch.Interface, error), f func(runtime.Object)) {
	ctx := context.Background()
	for {
		w, err := start(ctx)
		if err != nil {
			time.Sleep(100 * time.Millisecond) // the server is away
			continue
		}
		for e := range w.ResultChan() {
			if e.Type == watch.Added || e.Type == watch.Modified {
				f(e.Object)
			}
		}
	}
}

// provision makes the local driver's volumes for claims that the scheduler chose a
// node for, as external-provisioner does.
func provision(p *plane) {
	each(func(ctx context.Context) (watch.Interface, error) {
		return p.client.CoreV1().PersistentVolumeClaims("default").Watch(ctx, metav1.ListOptions{})
	}, func(obj runtime.Object) {
		claim, ok := obj.(*corev1.PersistentVolumeClaim)
		at := ""
		if ok {
			at = claim.Annotations["volume.kubernetes.io/selected-node"]
		}
		if at == "" || *claim.Spec.StorageClassName != "local" || claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil {
			return
		}
		if pv, err := createVolume(claim, at); err == nil {
			_, _ = p.client.CoreV1().PersistentVolumes().Create(context.Background(), pv, metav1.CreateOptions{})
		}
	})
}

func createVolume(claim *corev1.PersistentVolumeClaim, at string) (*corev1.PersistentVolume, error) {
	conn, err := grpc.NewClient("unix://"+filepath.Join(place(at), "root", "plugins", driverName, "csi.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	size := claim.Spec.Resources.Requests.Storage().Value()
	made, err := csi.NewControllerClient(conn).CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: "pvc-" + string(claim.UID), CapacityRange: &csi.CapacityRange{RequiredBytes: size},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		}},
	}, grpc.WaitForReady(true))
	if err != nil {
		return nil, err
	}
	mode, key := corev1.PersistentVolumeFilesystem, "topology."+driverName+"/node"
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + string(claim.UID), Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": driverName}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{"storage": *resource.NewQuantity(max(size, made.GetVolume().GetCapacityBytes()), resource.BinarySI)},
			AccessModes: claim.Spec.AccessModes, VolumeMode: &mode, StorageClassName: *claim.Spec.StorageClassName,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: driverName, VolumeHandle: made.GetVolume().GetVolumeId(), VolumeAttributes: made.GetVolume().GetVolumeContext(),
			}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{at}}},
			}}}},
		},
	}, nil
}

// attach says of every attachment of the local driver's volumes that it is made, as
// external-attacher does for a driver that has nothing to do for it. Those of an
// array are the array's own, and nobody's where it has no attacher.
func attach(p *plane) {
	each(func(ctx context.Context) (watch.Interface, error) {
		return p.client.StorageV1().VolumeAttachments().Watch(ctx, metav1.ListOptions{})
	}, func(obj runtime.Object) {
		if va, ok := obj.(*storagev1.VolumeAttachment); ok && va.Spec.Attacher == driverName && !va.Status.Attached && va.DeletionTimestamp == nil {
			va = va.DeepCopy()
			va.Status.Attached = true
			_, _ = p.client.StorageV1().VolumeAttachments().UpdateStatus(context.Background(), va, metav1.UpdateOptions{})
		}
	})
}
