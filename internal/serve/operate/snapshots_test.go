package operate

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// A snapshot that a claim waits to be restored from is not deleted: the claim's driver may be away or out of room, and
// the snapshot may be the last copy. A claim of another namespace keeps no snapshot but that of its own.
func TestASnapshotStaysWhileAClaimWaitsToBeRestoredFromIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer func() { cancel(); synctest.Wait() }()
		o, c := objectsOf(ctx, t)
		c.DriverUp(controller.Driver{Name: "d", Conn: cuts{}})
		key, claim := controller.Key{Namespace: "shop", Name: "monday"}, controller.Key{Namespace: "shop", Name: "restored"}
		others := controller.Key{Namespace: "bank", Name: "monday"}
		for _, k := range []controller.Key{key, others} {
			c.SetSnapshot(controller.Snapshot{
				Key: k, UID: k.Namespace, Claim: controller.Key{Namespace: k.Namespace, Name: "data"}, Volume: "v",
				Class: controller.SnapshotClass{Name: "d", Driver: "d"},
			})
		}
		c.SetClaim(controller.Claim{
			Key: claim, UID: "c", SizeBytes: 1, Class: controller.Class{Name: "away", Provisioner: "away"},
			Source: &controller.DataSource{Snapshot: key},
		})
		synctest.Wait()
		remove := func(k controller.Key) error {
			_, err := o.DeleteSnapshot(ctx, audit.By{}, server.SnapshotDeletion{Namespace: k.Namespace, Name: k.Name})
			return err
		}
		data := "data"
		object := &snapshotv1.VolumeSnapshot{
			TypeMeta:   metav1.TypeMeta{APIVersion: "snapshot.storage.k8s.io/v1", Kind: resolve.KindSnapshot},
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "shop"},
			Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &data}},
		}
		if _, err := o.c.API.Apply(ctx, []runtime.Object{object}); err != nil {
			t.Fatal(err)
		}
		if err := remove(key); !errors.Is(err, server.ErrConflict) || !strings.Contains(err.Error(), "restores snapshot shop/monday") {
			t.Errorf("the deletion is answered %v", err)
		}
		listed := o.c.Catalog.Get(source.Key{Kind: resolve.KindSnapshot, Namespace: key.Namespace, Name: key.Name})
		if s, _ := c.Snapshot(key); s.Phase == controller.Deleting || s.Handle == "" || listed == nil {
			t.Errorf("the snapshot: %+v, its object %v", s, listed)
		}
		c.RemoveSnapshot(others) // its source no longer lists it
		if err := remove(others); err != nil {
			t.Errorf("the snapshot of another namespace: %v", err)
		}
		c.RemoveClaim(claim)
		c.RemoveSnapshot(key)
		synctest.Wait()
		if err := remove(key); err != nil {
			t.Errorf("without the claim: %v", err)
		}
	})
}
