package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// A VolumeSnapshotContent with deletionPolicy Delete names the driver's snapshot of another VolumeSnapshot. Deleting that
// record says that only it goes, the other gives its data back, also after a restart, and the last one takes the
// driver's snapshot.
func TestASecondRecordOfASnapshotDoesNotTakeItsData(t *testing.T) {
	eachKind(t, func(n *node) {
		t := n.T
		n.Apply(n.driver.class(), claim("data", "64Mi", fileSystem, rwo), harness.Pod("web", harness.FromClaim("data", "data")))
		n.Mounted("web")
		write(t, filepath.Join(n.HostPath("web", "data"), "f"), "backup")
		n.DeletePods("web")
		n.NoVolumes()
		n.Do("", "snapshot", "create", "pvc/data", "--name", "monday")
		handle := n.Do("", "get", "snapshots", "monday", "-o", "jsonpath={.snapshotHandle}")
		n.Apply(fmt.Sprintf(`apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotContent
metadata: {name: other}
spec:
  driver: %s
  deletionPolicy: Delete
  source: {snapshotHandle: %s}
  volumeSnapshotRef: {namespace: shop, name: other}`, n.driver.name, handle), `apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {namespace: shop, name: other}
spec: {source: {volumeSnapshotContentName: other}}`)
		n.Eventually("the second record", func() bool {
			return n.CLI("", "get", "snapshots", "other", "-n", "shop", "-o", "jsonpath={.readyToUse}").Stdout == "true"
		})
		n.daemon.Kill()
		n.start()
		n.DriverUp(n.driver.name)
		if got := n.Do("", "delete", "snapshot", "other", "-n", "shop"); !strings.Contains(got, "only its record: snapshot default/monday has the same snapshot") {
			t.Errorf("delete: %s", got)
		}
		n.Do("", "snapshot", "restore", "monday", "pvc/copy")
		n.Apply(harness.Pod("reader", harness.FromClaim("copy", "copy")))
		n.Mounted("reader")
		wantFile(t, filepath.Join(n.HostPath("reader", "copy"), "f"), "backup")
		n.DeletePods("reader")
		if got := n.Do("", "delete", "snapshot", "monday"); strings.Contains(got, "only its record") {
			t.Errorf("delete of the last: %s", got)
		}
		if all, err := csi.NewControllerClient(n.driver.proxy.conn).ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{}); err != nil || len(all.GetEntries()) > 0 {
			t.Errorf("snapshots at the driver: %v, %v", all, err)
		}
		n.DeleteClaims("copy", "data")
		n.nothingLeft()
	})
}

// A PersistentVolume of a manifest has the handle of a volume that was made for a claim. Deleting that claim would take
// the data; it is refused and names the PersistentVolume and what ends it. Once that is withdrawn, the claim goes.
func TestAClaimWhoseVolumeIsListedTooIsNotDeleted(t *testing.T) {
	eachKind(t, func(n *node) {
		t := n.T
		n.Apply(n.driver.class(), claim("data", "64Mi", fileSystem, rwo), harness.Pod("web", harness.FromClaim("data", "data")))
		n.Mounted("web")
		write(t, filepath.Join(n.HostPath("web", "data"), "f"), "precious")
		n.DeletePods("web")
		n.NoVolumes()
		second := fmt.Sprintf(`apiVersion: v1
kind: PersistentVolume
metadata: {name: second}
spec:
  accessModes: [ReadWriteOnce]
  capacity: {storage: 64Mi}
  csi: {driver: %s, volumeHandle: %s}
  claimRef: {namespace: shop, name: mine}`, n.driver.name, n.handleOf("data"))
		n.Apply(second)
		r := n.CLI("", "delete", "pvc", "data")
		if r.Code == 0 || !strings.Contains(r.Stderr, "also belongs to volume second: delete that first: csi-volmgr delete -f FILE") {
			t.Errorf("delete: %s%s", r.Stdout, r.Stderr)
		}
		n.Apply(harness.Pod("web", harness.FromClaim("data", "data")))
		n.Mounted("web")
		wantFile(t, filepath.Join(n.HostPath("web", "data"), "f"), "precious")
		n.DeletePods("web")
		n.Do(second, "delete", "-f", "-")
		n.DeleteClaims("data")
		n.nothingLeft()
	})
}
