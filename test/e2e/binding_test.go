package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// A claim that names no volume gets the smallest existing volume that fits, and keeps it
// when the daemon is killed. When the claim is deleted, the volume keeps its data for a
// claim of the same name.
func TestAClaimGetsAVolumeThatIsThere(t *testing.T) {
	t.Parallel()
	n := newPlace(t)
	n.flags = []string{"--host-path-allow=" + n.Path("disks")}
	volume := func(name, size string) string {
		dir := n.Path("disks/" + name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: %s}, spec: {storageClassName: manual,
  capacity: {storage: %s}, accessModes: [ReadWriteOnce], local: {path: %s}, nodeAffinity: {required: {nodeSelectorTerms: [
  {matchExpressions: [{key: kubernetes.io/hostname, operator: Exists}]}]}}}}`, name, size, dir)
	}
	claim := func(name string) string {
		return fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: %s, namespace: default},
  spec: {storageClassName: manual, accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}}}`, name)
	}
	n.start()
	n.Apply(volume("large", "9Gi"), volume("fits", "2Gi"), volume("small", "1Gi"), claim("data"),
		harness.Pod("web", harness.FromClaim("data", "data")))
	n.Mounted("web")
	write(t, filepath.Join(n.HostPath("web", "data"), "f"), "of data")
	wantFile(t, n.Path("disks/fits/f"), "of data")
	n.daemon.Kill()
	n.start()
	n.Apply(claim("other"), harness.Pod("db", harness.FromClaim("data", "other")))
	n.Mounted("web", "db") // web's call is repeated if its result was not written yet
	write(t, filepath.Join(n.HostPath("db", "data"), "g"), "of other")
	wantFile(t, n.Path("disks/large/g"), "of other")
	wantFile(t, filepath.Join(n.HostPath("web", "data"), "f"), "of data")

	n.Apply(claim("third"), harness.Pod("late", harness.FromClaim("data", "third")))
	n.blocked("late", `no PersistentVolume of class "manual" fits`, "small: it has 1Gi", "fits: it is of claim default/data")
	n.DeletePods("web", "late")
	said := n.Do("", "delete", "pvc", "data")
	if want := "its volume fits is kept with its data"; !strings.Contains(said, want) {
		t.Errorf("delete pvc says %q, want %q in it", said, want)
	}
	n.wantPV("fits", "Released", "default/data")
	n.wantPV("small", "Available", "")
	n.Apply(harness.Pod("late", harness.FromClaim("data", "third")))
	n.blocked("late", "fits: it is of claim default/data")
	n.Apply(claim("data"), harness.Pod("again", harness.FromClaim("data", "data")))
	n.Mounted("again")
	wantFile(t, filepath.Join(n.HostPath("again", "data"), "f"), "of data")
	n.wantPV("fits", "Bound", "default/data")
}

// wantPV checks the status and the claim that get pv shows for a PersistentVolume.
func (n *node) wantPV(name, status, claim string) {
	n.T.Helper()
	var all struct {
		Items []struct{ Name, Status, Claim string }
	}
	text := n.Do("", "get", "pv", "-o", "json")
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		n.T.Fatalf("%v: %s", err, text)
	}
	for _, pv := range all.Items {
		if pv.Name == name && (pv.Status != status || pv.Claim != claim) {
			n.T.Errorf("get pv says of %s: %s, claim %q; want %s, claim %q", name, pv.Status, pv.Claim, status, claim)
		}
		if pv.Name == name {
			return
		}
	}
	n.T.Errorf("get pv says nothing of %s: %s", name, text)
}
