package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// volume set says what becomes of the data with the claim, durably; get pv and get pvc show what is in force, also where
// the class said nothing and where a source lists the volume.
func TestThePolicyOfAClaimIsShownAndSet(t *testing.T) {
	eachKind(t, func(n *node) {
		t := n.T
		silent := strings.Replace(n.driver.class(), "reclaimPolicy: Delete\n", "", 1)
		disk := `{apiVersion: v1, kind: PersistentVolume, metadata: {name: disk}, spec: {capacity: {storage: 64Mi}, accessModes: [ReadWriteOnce],
  storageClassName: listed, persistentVolumeReclaimPolicy: Delete, csi: {driver: ` + n.driver.name + `, volumeHandle: h}}}`
		n.Apply(silent, claim("data", "64Mi", fileSystem, rwo), claim("other", "64Mi", fileSystem, rwo), disk,
			`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: listed}, spec: {storageClassName: listed, volumeName: disk,
  accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}}`)
		name := n.madeFor("data")
		n.handleOf("other")
		says := func(want string) {
			t.Helper()
			pv := n.Do("", "get", "pv", name, "-o", "jsonpath={.reclaimPolicy}")
			if pvc := n.Do("", "get", "pvc", "data", "-o", "jsonpath={.reclaimPolicy}"); pvc != want || pv != want {
				t.Errorf("get pvc says %q, get pv %q, want %s", pvc, pv, want)
			}
		}
		says("Delete") // as Kubernetes has it for a class without a policy
		for kind, object := range map[string]string{"pv": "disk", "pvc": "listed"} {
			if got := n.Do("", "get", kind, object, "-o", "jsonpath={.reclaimPolicy}"); got != "Retain" {
				t.Errorf("%s %s: %q; csi-volmgr does not delete what it did not make", kind, object, got)
			}
		}
		n.Apply(harness.Pod("web", harness.FromClaim("data", "data")))
		n.Mounted("web")
		write(t, filepath.Join(n.HostPath("web", "data"), "f"), "of data")
		n.Do("", "volume", "set", "pvc/data", "--reclaim=Retain") // while it is mounted
		says("Retain")
		n.DeletePods("web")
		n.NoVolumes()
		n.daemon.Kill()
		n.start()
		n.DriverUp(n.driver.name)
		says("Retain")

		said := n.CLI("", "delete", "pvc", "--all") // as a script does, which has no terminal
		for _, line := range []string{
			"would delete pvc/data: its volume " + name + " of ", "stays, with its data (reclaimPolicy Retain)", "would delete pvc/other: ",
			"goes with ITS DATA", "would delete pvc/listed: its volume disk of 64Mi stays, with its data: csi-volmgr did not make it",
		} {
			if said.Code != 2 || !strings.Contains(said.Stdout, line) {
				t.Errorf("exit code %d, want 2 and %q:\n%s", said.Code, line, said.Stdout)
			}
		}
		if got := n.driver.proxy.count("DeleteVolume"); got != 0 {
			t.Fatalf("%d calls of DeleteVolume", got)
		}
		n.Do("", "delete", "pvc", "--all", "--yes")
		if got := n.driver.proxy.count("DeleteVolume"); got != 1 {
			t.Errorf("%d calls of DeleteVolume, want that of other", got)
		}
		n.Do("", "volume", "set", "pvc", "data", "--reclaim=Delete") // of a volume that is kept, too
		n.Apply(claim("data", "64Mi", fileSystem, rwo))
		n.holds("a", "of data")
		n.Do("", "delete", "pvc", "data")
		n.Do(disk, "delete", "-f", "-")
		n.nothingLeft()
	})
}

// volume set refuses what would not hold, with what is right.
func TestAPolicyThatWouldNotHoldIsRefused(t *testing.T) {
	t.Parallel()
	n := withPlugin(t, kinds()[0])
	name, handle, _ := n.twoClaims()
	refused := func(claim, policy, want string) {
		t.Helper()
		if said := n.CLI("", "volume", "set", "pvc/"+claim, "--reclaim="+policy); said.Code != 1 || !strings.Contains(said.Stderr, want) {
			t.Errorf("claim %s: %+v, want %q", claim, said, want)
		}
	}
	refused("nosuch", "Retain", "claim default/nosuch")
	file := filepath.Join(n.manifests(), "pv.yaml")
	write(t, file, n.pvOf(name, handle, ", persistentVolumeReclaimPolicy: Retain"))
	n.Eventually("the manifest's policy", func() bool {
		return n.Do("", "get", "pv", name, "-o", "jsonpath={.reclaimPolicy}") == "Retain"
	})
	refused("data", "Delete", "PersistentVolume "+name+" of source file says Retain")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	n.Eventually("the policy to be free", func() bool {
		return n.CLI("", "volume", "set", "pvc/data", "--reclaim=Delete").Code == 0
	})

	// The claim of a volume of Docker: what was set last is done, when Docker removes it, too.
	n.pluginCreate("db")
	n.Do("", "volume", "set", "pvc/db", "--reclaim=Delete")
	n.pluginCreate("db") // as compose does at each start
	if got := n.Do("", "get", "pvc", "db", "-o", "jsonpath={.reclaimPolicy}"); got != "Delete" {
		t.Errorf("get pvc says %s", got)
	}
	n.plugin("VolumeDriver.Remove", map[string]any{"Name": "db"})
	if left := n.Do("", "volume", "list", "--all"); strings.Contains(left, "db") {
		t.Errorf("left:\n%s", left)
	}
	n.DeleteClaims("data", "other")
}
