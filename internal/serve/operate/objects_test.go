package operate

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/made"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// nothing is a node without pods and volumes in use.
type nothing struct{}

func (nothing) SetPod(state.PodWant)                                 {}
func (nothing) RemovePod(state.PodUID)                               {}
func (nothing) SourceSynced(string)                                  {}
func (nothing) Wanted(controller.Key) string                         { return "" }
func (nothing) InUse(state.VolumeID, string) string                  { return "" }
func (nothing) Listed(controller.Key, state.VolumeID, string) string { return "" }

// After the deletion of a claim the user finds no volume of it either: the catalog still
// shows the volume for a moment after the controller removed it.
func TestAClaimIsDeletedOnceNoVolumeIsShown(t *testing.T) {
	var none nothing
	catalog := source.New(source.Config{Resolve: resolve.Config{Layout: state.Layout{Root: "/r"}, NodeName: "n1"}, Sink: none})
	o := NewObjects(ObjectsConfig{
		Catalog: catalog, Controller: controller.New(controller.Config{KV: journal.NewMemory(), Usage: none}),
		Changed: func() <-chan struct{} { return nil },
	})
	pv := &corev1.PersistentVolume{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: resolve.KindVolume}, ObjectMeta: metav1.ObjectMeta{Name: "pvc-1"},
		Spec: corev1.PersistentVolumeSpec{
			ClaimRef:    &corev1.ObjectReference{Namespace: "default", Name: "data"},
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: "d", VolumeHandle: "h",
			}},
		},
	}
	if err := catalog.Put(made.Name, pv); err != nil {
		t.Fatal(err)
	}
	now, cancel := context.WithCancel(t.Context())
	cancel() // so waitDeleted only checks, and does not wait
	if err := o.waitDeleted(now, controller.Key{Namespace: "default", Name: "data"}); err == nil {
		t.Errorf("the claim counts as deleted, and %d volumes are shown", len(catalog.Volumes()))
	}
	if err := o.waitDeleted(now, controller.Key{Namespace: "default", Name: "other"}); err != nil {
		t.Errorf("another claim: %v", err)
	}
	catalog.Delete(made.Name, source.Key{Kind: resolve.KindVolume, Name: "pvc-1"})
	if err := o.waitDeleted(now, controller.Key{Namespace: "default", Name: "data"}); err != nil {
		t.Error(err)
	}
}
