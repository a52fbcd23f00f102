package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// owned returns a claim of 1 GiB that may name a volume, and a pod of its name in its namespace.
func owned(namespace, name, volume string) []string {
	return []string{
		fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: %s, namespace: %s}, spec: {storageClassName: "",
  volumeName: %q, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`, name, namespace, volume),
		fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s}, spec: {containers: [{name: c, image: x,
  volumeMounts: [{name: v, mountPath: /v}]}], volumes: [{name: v, persistentVolumeClaim: {claimName: %s}}]}}`, name, namespace, name),
	}
}

// A volume is its first claim's, by the binder's choice or by its name: another author's claim that names it
// does not get it, nor the data that a deleted claim left, until an operator says so. What the volume's own
// claim has goes on, over a restart, too.
func TestAVolumeIsItsFirstClaims(t *testing.T) {
	t.Parallel()
	n := newPlace(t)
	n.flags = []string{"--host-path-allow=" + n.Path("disks")}
	disk := func(name string) string {
		dir := n.Path("disks/" + name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: %s}, spec: {capacity: {storage: 1Gi},
  accessModes: [ReadWriteOnce], local: {path: %s}, nodeAffinity: {required: {nodeSelectorTerms: [
  {matchExpressions: [{key: kubernetes.io/hostname, operator: Exists}]}]}}}}`, name, dir)
	}
	mounted := func(namespace, name string) {
		t.Helper()
		n.Do("", "wait", "pod", name, "-n", namespace, "--for=mounted", "--timeout=1m")
	}
	refused := func(namespace, name, why string) {
		t.Helper()
		n.Eventually("explain of "+namespace+"/"+name+" to say "+why, func() bool {
			return strings.Contains(n.Do("", "explain", "pod", name, "-n", namespace), why)
		})
		if said := n.Do("", "get", "mounts", "-A"); strings.Contains(said, namespace+"/"+name) {
			t.Errorf("%s/%s has a mount:\n%s", namespace, name, said)
		}
	}
	n.start()
	n.Apply(append([]string{disk("chosen")}, owned("bank", "data", "")...)...)
	mounted("bank", "data")
	write(t, n.Path("disks/chosen/f"), "of the bank")
	n.Apply(append([]string{disk("named")}, owned("bank", "logs", "named")...)...)
	mounted("bank", "logs")

	n.Apply(append(owned("evil", "thief", "chosen"), owned("evil", "other", "named")...)...)
	refused("evil", "thief", "claim bank/data has it")
	refused("evil", "other", "claim bank/logs has it")
	n.daemon.Kill()
	n.start()
	mounted("bank", "data")
	mounted("bank", "logs")
	refused("evil", "thief", "claim bank/data has it")

	n.Do("", "delete", "pod", "data", "-n", "bank")
	if said := n.Do("", "delete", "pvc", "data", "-n", "bank"); !strings.Contains(said, "csi-volmgr volume release chosen") {
		t.Errorf("delete pvc says %q", said)
	}
	refused("evil", "thief", "found the data of claim bank/data, which was deleted")
	n.Apply(owned("bank", "data", "")...) // people delete and apply daily
	mounted("bank", "data")
	wantFile(t, n.Path("disks/chosen/f"), "of the bank")
	if said := n.CLI("", "volume", "release", "chosen"); said.Code == 0 || !strings.Contains(said.Stderr, "it is mounted for claim bank/data") {
		t.Errorf("release of a mounted volume: %+v", said)
	}
	n.Do("", "delete", "pod", "data", "-n", "bank")
	n.Do("", "delete", "pvc", "data", "-n", "bank")
	n.Do("", "volume", "release", "chosen", "--reason=moved")
	mounted("evil", "thief")
	wantFile(t, n.Path("disks/chosen/f"), "of the bank")
}

// A copy of a volume is as much its claim's as the volume: another author's claim that names it gets no snapshot and no
// clone of it, not in the moment after a restart either, and its author restores no snapshot of another namespace.
func TestACopyOfAVolumeIsItsClaimsAlone(t *testing.T) {
	eachKind(t, func(n *node) {
		t, client := n.T, csi.NewControllerClient(n.driver.proxy.conn)
		made, err := client.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
			Name: "by-hand", CapacityRange: &csi.CapacityRange{RequiredBytes: 64 << 20}, VolumeCapabilities: []*csi.VolumeCapability{{
				AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
				AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		attributes, err := json.Marshal(made.GetVolume().GetVolumeContext())
		if err != nil {
			t.Fatal(err)
		}
		disk := fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: disk}, spec: {capacity: {storage: 64Mi},
  accessModes: [ReadWriteOnce], csi: {driver: %s, volumeHandle: %s, fsType: ext4, volumeAttributes: %s}}}`, n.driver.name, made.GetVolume().GetVolumeId(), attributes)
		mine, theirs := owned("bank", "data", "disk"), owned("evil", "thief", "disk")
		copies := []string{
			`{apiVersion: snapshot.storage.k8s.io/v1, kind: VolumeSnapshot, metadata: {name: cut, namespace: evil}, spec: {source: {persistentVolumeClaimName: thief}}}`,
			`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: clone, namespace: evil}, spec: {storageClassName: class,
  dataSource: {kind: PersistentVolumeClaim, name: thief}, accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}}`,
			`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: restored, namespace: evil}, spec: {storageClassName: class,
  dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: backup}, accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}}`,
			`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: reaches, namespace: evil}, spec: {storageClassName: class,
  dataSourceRef: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: backup, namespace: bank}, accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}}`,
		}
		small := func(docs ...string) []string {
			for i := range docs {
				docs[i] = strings.ReplaceAll(docs[i], "1Gi", "64Mi")
			}
			return docs
		}
		says := func(words string, args ...string) {
			t.Helper()
			n.Eventually(strings.Join(args, " ")+" to say "+words, func() bool { return strings.Contains(n.CLI("", args...).Stdout, words) })
		}
		n.Apply(append([]string{n.driver.class(), disk}, small(mine...)...)...)
		n.Do("", "wait", "pod", "data", "-n", "bank", "--for=mounted", "--timeout=1m")
		mounts, err := n.API.Mounts(t.Context(), "bank", "data")
		if err != nil || len(mounts) != 1 {
			t.Fatalf("%v, %v", mounts, err)
		}
		write(t, filepath.Join(mounts[0].HostPath, "f"), "of the bank")
		n.Do("", "delete", "pod", "data", "-n", "bank")
		n.Do("", "snapshot", "create", "pvc/data", "-n", "bank", "--name=backup") // so the driver can
		before := n.driver.proxy.count("CreateSnapshot", "CreateVolume")

		n.Apply(small(append(theirs, copies...)...)...)
		for _, when := range []string{"at first", "after a restart"} {
			says("claim evil/thief has no volume", "explain", "snapshot", "cut", "-n", "evil")
			says("its source, claim evil/thief, has no volume", "explain", "pvc", "clone", "-n", "evil")
			says("its source, snapshot evil/backup, was not found", "explain", "pvc", "restored", "-n", "evil")
			says("claim bank/data has it", "explain", "pod", "thief", "-n", "evil")
			says("is in namespace bank", "explain", "pvc", "reaches", "-n", "evil")
			if calls := n.driver.proxy.count("CreateSnapshot", "CreateVolume"); calls != before {
				t.Errorf("%s the driver was asked for %d copies", when, calls-before)
			}
			n.daemon.Kill()
			n.start()
			n.DriverUp(n.driver.name)
		}
		n.Do("", "snapshot", "restore", "backup", "pvc/back", "-n", "bank", "--class=class")
		n.Apply(small(owned("bank", "back", "")[1])...)
		n.Do("", "wait", "pod", "back", "-n", "bank", "--for=mounted", "--timeout=1m")
		if mounts, err = n.API.Mounts(t.Context(), "bank", "back"); err != nil || len(mounts) != 1 {
			t.Fatalf("%v, %v", mounts, err)
		}
		wantFile(t, filepath.Join(mounts[0].HostPath, "f"), "of the bank")
	})
}
