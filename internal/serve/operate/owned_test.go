package operate

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/schedule"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/file"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// A snapshot, a clone or a schedule of a claim of the cluster is refused at once, with advice; one of
// a claim of the node's own is not.
func TestWhatTheClusterMakesIsRefused(t *testing.T) {
	var none nothing
	catalog := source.New(source.Config{Resolve: resolve.Config{Layout: state.Layout{Root: "/r"}, NodeName: "n1"}, Sink: none})
	for provider, name := range map[string]string{source.Kube: "theirs", file.Name: "ours"} {
		err := catalog.Put(provider, &corev1.PersistentVolumeClaim{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: resolve.KindClaim}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"of": name}},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	o := NewObjects(ObjectsConfig{
		Catalog: catalog, Controller: controller.New(controller.Config{KV: journal.NewMemory(), Usage: none}), Journal: journal.NewMemory(),
	})
	const group = "apiVersion: groupsnapshot.storage.k8s.io/v1\nkind: VolumeGroupSnapshot\nmetadata: {name: g, namespace: shop}\n" +
		"spec: {source: {selector: {matchLabels: {of: CLAIM}}}}"
	const claim = "spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, dataSource: {kind: PersistentVolumeClaim, name: "
	for what, text := range map[string]string{
		"external-snapshotter makes its snapshots": "apiVersion: snapshot.storage.k8s.io/v1\nkind: VolumeSnapshot\n" +
			"metadata: {name: x, namespace: shop}\nspec: {source: {persistentVolumeClaimName: CLAIM}}",
		"create the VolumeGroupSnapshot there":   group,
		"external-provisioner clones its volume": "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: x, namespace: shop}\n" + claim + "CLAIM}}",
	} {
		_, err := o.Apply(t.Context(), server.Manifest{Name: "x", Data: []byte(strings.Replace(text, "CLAIM", "theirs", 1))})
		if !errors.Is(err, server.ErrConflict) || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "kubectl apply -n shop") {
			t.Errorf("%v, want that %s", err, what)
		}
		for _, name := range []string{"theirs", "ours"} { // a check is refused for the same reason, and applies nothing
			_, err := o.Apply(t.Context(), server.Manifest{Name: "x", Data: []byte(strings.Replace(text, "CLAIM", name, 1)), Check: true})
			if refused := errors.Is(err, server.ErrConflict); refused != (name == "theirs") || !refused && err != nil {
				t.Errorf("check of %s: %v", name, err)
			}
		}
		objects, err := o.decode(t.Context(), server.Manifest{Name: "x", Data: []byte(strings.Replace(text, "CLAIM", "ours", 1))})
		if err == nil {
			err = o.checkOwned(objects.Objects)
		}
		if err != nil {
			t.Errorf("of a claim of the node's own: %v", err)
		}
	}
	_, err := o.Schedules.SetSchedule(t.Context(), server.ScheduleRequest{Namespace: "shop", Name: "s", Claim: "theirs", Every: "daily", Keep: 7})
	if !errors.Is(err, server.ErrConflict) || !strings.Contains(err.Error(), "kubectl create") {
		t.Errorf("a schedule: %v", err)
	}
	// A schedule that was set before the claim was the cluster's makes no snapshot.
	err = o.makeSnapshot(t.Context(), schedule.Schedule{Namespace: "shop", Name: "s", Claim: "theirs"}, "s-1")
	if !errors.Is(err, server.ErrConflict) {
		t.Errorf("a snapshot of the schedule: %v", err)
	}
}
