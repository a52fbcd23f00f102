//go:build cluster

package cluster

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// attachments returns the VolumeAttachments of the driver's volumes.
func (s *shared) attachments() (all []storagev1.VolumeAttachment) {
	s.t.Helper()
	l, err := control.client.StorageV1().VolumeAttachments().List(s.t.Context(), metav1.ListOptions{})
	must(s.t, err)
	for _, a := range l.Items {
		if a.Spec.Attacher == s.name {
			all = append(all, a)
		}
	}
	return all
}

// template returns a generic ephemeral volume of the storage.
func (s *shared) template(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &s.name, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}},
		},
	}}}}
}

// The CSIDriver object decides whether a volume is attached. The strict driver checks that
// a volume is mounted only after its attachment and detached only after its unmount, and
// that the publish_context is the attachment's.
//
// Items: A06, A07.
func TestScenariosOfAttachment(t *testing.T) {
	t.Parallel()
	n := asNode(t, "scene-attach")
	for name, test := range map[string]func(*testing.T){
		// Scenarios: U-01.
		"none is required": func(t *testing.T) {
			s := begin(t, n, unattached("attach-none.test", nil))
			s.static("attach-none", nil)
			s.up("attach-none", fromClaim("attach-none"))
			if all := s.attachments(); len(all) > 0 || len(s.publication().GetPublishContext()) > 0 {
				t.Errorf("attachments %v, publish_context %v", all, s.publication().GetPublishContext())
			}
			s.down("attach-none")
		},
		// Scenarios: U-02.
		"one is required": func(t *testing.T) {
			s := begin(t, n, attached("attach-one.test"))
			s.static("attach-one", nil)
			s.up("attach-one", fromClaim("attach-one"))
			all := s.attachments()
			if len(all) != 1 || !all[0].Status.Attached || all[0].Spec.NodeName != n.name {
				t.Errorf("attachments %v", all)
			}
			stage := asked[csi.NodeStageVolumeRequest](s.shared, "NodeStageVolume")
			if s.publication().GetPublishContext()["device"] != "disk-attach-one" || stage[0].GetPublishContext()["device"] != "disk-attach-one" {
				t.Errorf("publish_context %v, of the stage %v", s.publication().GetPublishContext(), stage[0].GetPublishContext())
			}
			s.down("attach-one")
			s.n.eventually("the attachment goes", func() bool { return len(s.attachments()) == 0 })
		},
		// Scenarios: U-03.
		"of a generic ephemeral volume": func(t *testing.T) {
			s := begin(t, n, attached("attach-own.test", "csi-provisioner"))
			s.up("attach-own", s.template("data"))
			if all := s.attachments(); len(all) != 1 || !all[0].Status.Attached {
				t.Errorf("attachments %v", all)
			}
			s.down("attach-own")
			s.n.eventually("claim, volume and attachment go with the pod", func() bool {
				return len(s.model().Volumes) == 0 && len(s.attachments()) == 0
			})
		},
		// Scenarios: U-05.
		// Kubernetes' controller looks for such pods once a minute.
		"it is required no more": func(t *testing.T) {
			s := begin(t, n, attached("attach-off.test"))
			s.static("attach-off", nil)
			s.up("attach-off", fromClaim("attach-off"))
			s.replaced(func(spec *storagev1.CSIDriverSpec) { *spec.AttachRequired = false })
			s.down("attach-off") // detached: the strict driver has nothing left
			s.n.eventually("the attachment goes", func() bool { return len(s.attachments()) == 0 })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

// replaced deletes the CSIDriver object and makes another one with the same name.
func (s *shared) replaced(change func(*storagev1.CSIDriverSpec)) {
	s.t.Helper()
	drivers := control.client.StorageV1().CSIDrivers()
	old, err := drivers.Get(s.t.Context(), s.name, metav1.GetOptions{})
	must(s.t, err)
	must(s.t, drivers.Delete(s.t.Context(), s.name, metav1.DeleteOptions{}))
	change(&old.Spec)
	_, err = drivers.Create(s.t.Context(), &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: s.name}, Spec: old.Spec}, metav1.CreateOptions{})
	must(s.t, err)
}
