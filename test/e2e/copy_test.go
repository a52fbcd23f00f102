package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// A claim made from a snapshot has the snapshot's content, without what was written later.
func TestSnapshotIsRestored(t *testing.T) {
	eachKind(t, func(n *node) {
		t, p := n.T, n.driver.proxy
		n.daemon.Kill()
		n.flags = []string{"--snapshot-handle-allow=default"}
		n.start()
		n.DriverUp(n.driver.name)
		n.Apply(n.driver.class(), claim("data", "64Mi", fileSystem, rwo), harness.Pod("web", harness.FromClaim("data", "data")))
		n.Mounted("web")
		write(t, filepath.Join(n.HostPath("web", "data"), "f"), "before")
		n.DeletePods("web")
		n.NoVolumes()
		snap, err := csi.NewControllerClient(p.conn).CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{SourceVolumeId: n.handleOf("data"), Name: "snap"})
		if err != nil {
			t.Fatalf("take a snapshot: %v", err)
		}
		id := snap.GetSnapshot().GetSnapshotId()
		n.Apply(harness.Pod("web", harness.FromClaim("data", "data")))
		n.Mounted("web")
		write(t, filepath.Join(n.HostPath("web", "data"), "f"), "after")

		n.Apply(restored("nothing", ""), harness.Pod("waits", harness.FromClaim("data", "nothing")))
		n.blocked("waits", "snapshot default/snap", "was not found")
		n.Apply(restored("copy", id), harness.Pod("reader", harness.FromClaim("data", "copy")))
		n.Mounted("reader")
		wantFile(t, filepath.Join(n.HostPath("reader", "data"), "f"), "before")
		wantFile(t, filepath.Join(n.HostPath("web", "data"), "f"), "after")
		n.DeletePods("reader", "web", "waits")
		n.DeleteClaims("copy", "data", "nothing")
		if _, err := csi.NewControllerClient(p.conn).DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: id}); err != nil {
			t.Errorf("delete the snapshot: %v", err)
		}
		n.nothingLeft()
	})
}

// restored returns a claim of snapshot snap, with an annotation that names the driver's id
// of the snapshot if id is not "".
func restored(name, id string) string {
	doc := strings.Replace(claim(name, "64Mi", fileSystem, rwo), "spec:\n",
		"spec:\n  dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: snap}\n", 1)
	if id == "" {
		return doc
	}
	return strings.Replace(doc, "{name: "+name+"}", "{name: "+name+", annotations: {csi-volmgr.dev/snapshot-handle: "+id+"}}", 1)
}

// The handle of another author's snapshot is no way to its data: not by an annotation, which is the operator's to
// allow, and not by the snapshot's name in another namespace. A VolumeSnapshotContent, which is no namespace's,
// gives it. A claim that was denied does not keep the snapshot from being deleted.
func TestAHandleIsTheOperatorsToGive(t *testing.T) {
	eachKind(t, func(n *node) {
		t := n.T
		n.Apply(n.driver.class(), claim("data", "64Mi", fileSystem, rwo), harness.Pod("web", harness.FromClaim("data", "data")))
		n.Mounted("web")
		write(t, filepath.Join(n.HostPath("web", "data"), "f"), "of the bank")
		n.DeletePods("web")
		n.NoVolumes()
		n.Do("", "snapshot", "create", "pvc/data", "--name", "monday")
		handle := n.Do("", "get", "snapshots", "monday", "-o", "jsonpath={.snapshotHandle}")
		in := func(namespace, doc string) string {
			return strings.Replace(doc, "metadata: {", "metadata: {namespace: "+namespace+", ", 1)
		}
		thief := func(namespace, name, handle string) []string {
			return []string{in(namespace, restored(name, handle)), in(namespace, harness.Pod(name, harness.FromClaim("data", name)))}
		}
		denied := func(name string) {
			t.Helper()
			n.Eventually(name+" to be told both ways", func() bool {
				said := n.Do("", "explain", "pvc", name, "-n", "evil")
				return strings.Contains(said, "VolumeSnapshotContent") && strings.Contains(said, "--snapshot-handle-allow=evil")
			})
			if got := n.CLI("", "get", "pvc", name, "-n", "evil", "-o", "jsonpath={.volume}").Stdout; got != "" {
				t.Fatalf("evil/%s has volume %s", name, got)
			}
		}
		n.Apply(thief("evil", "thief", handle)...)
		denied("thief")
		n.daemon.Kill()
		n.flags = []string{"--snapshot-handle-allow=bank"} // another namespace's leave
		n.start()
		n.DriverUp(n.driver.name)
		denied("thief")
		if got := n.driver.proxy.count("CreateVolume"); got != 1 {
			t.Errorf("%d calls of CreateVolume, want 1", got)
		}
		n.Apply(thief("bank", "branch", handle)...)
		n.Do("", "wait", "pod", "branch", "-n", "bank", "--for=mounted", "--timeout=1m")
		wantFile(t, filepath.Join(n.hostPathIn("bank", "branch"), "f"), "of the bank")

		n.Apply(fmt.Sprintf(`apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotContent
metadata: {name: given}
spec:
  driver: %s
  deletionPolicy: Retain
  source: {snapshotHandle: %s}
  volumeSnapshotRef: {namespace: shop, name: snap}`, n.driver.name, handle), `apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {namespace: shop, name: snap}
spec: {source: {volumeSnapshotContentName: given}}`)
		n.Apply(thief("shop", "given", "")...)
		n.Do("", "wait", "pod", "given", "-n", "shop", "--for=mounted", "--timeout=1m")
		wantFile(t, filepath.Join(n.hostPathIn("shop", "given"), "f"), "of the bank")
		for _, of := range [][2]string{{"bank", "branch"}, {"shop", "given"}, {"evil", "thief"}} {
			n.Do("", "delete", "pod", of[1], "-n", of[0])
		}
		n.NoVolumes()
		n.Do("", "delete", "pvc", "branch", "-n", "bank")
		n.Do("", "delete", "pvc", "given", "-n", "shop")
		n.Do("", "delete", "snapshot", "snap", "-n", "shop", "--data")
		if got := n.Do("", "delete", "snapshot", "monday"); !strings.Contains(got, "snapshot/monday deleted") {
			t.Errorf("delete beside a claim that was denied: %s", got)
		}
		n.Do("", "delete", "pvc", "thief", "-n", "evil")
		n.DeleteClaims("data")
		n.nothingLeft()
	})
}

// hostPathIn returns where the host has the only volume of a pod.
func (n *node) hostPathIn(namespace, pod string) string {
	n.T.Helper()
	return n.Do("", "get", "mounts", "--pod", pod, "-n", namespace, "-o", "jsonpath={.items[0].hostPath}")
}

// handleOf returns the driver's id of a claim's volume.
func (n *node) handleOf(claim string) (handle string) {
	n.T.Helper()
	harness.Until(n.Node, "claim "+claim+" to have a volume", n.API.WatchPersistentVolumes, func(all map[string]server.PVStatus) bool {
		for _, pv := range all {
			if pv.Claim == "default/"+claim {
				handle = pv.Handle
			}
		}
		return handle != ""
	})
	return handle
}
