package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
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
