package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// A claim is grown, modified, cloned and snapshotted with a freeze, all at once, while its
// pod goes and comes and the daemon is killed. Everything is done, the copies have the
// earlier content, and nothing is left.
func TestAClaimIsChangedInEveryWayAtOnce(t *testing.T) {
	eachKind(t, func(n *node) {
		t := n.T
		if !n.driver.local || !n.driver.sizes {
			t.Log("the driver's volumes have no size of their own")
			return
		}
		with := func(name, size, more string) string {
			return strings.Replace(claim(name, size, fileSystem, rwo), "spec:\n", "spec:\n"+more, 1)
		}
		n.Apply(n.driver.class(), fmt.Sprintf(`apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: fast}
driverName: %s
parameters: {readAheadKB: "2048"}
`, n.driver.name), with("data", "64Mi", ""), harness.Pod("web", harness.FromClaim("data", "data")))
		n.Mounted("web")
		write(t, filepath.Join(n.HostPath("web", "data"), "f"), "before")
		n.Remove("web")
		n.Apply(with("data", "128Mi", "  volumeAttributesClassName: fast\n"),
			with("clone", "256Mi", "  dataSource: {kind: PersistentVolumeClaim, name: data}\n"), `apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: cut, namespace: default, annotations: {csi-volmgr.dev/freeze: 10s}}
spec: {source: {persistentVolumeClaimName: data}}
`, harness.Pod("again", harness.FromClaim("data", "data")))
		n.daemon.Kill()
		n.start()
		n.Mounted("again")
		shows := func(kind, name, path, want string) {
			t.Helper()
			n.Eventually(kind+" "+name+" to say "+want, func() bool {
				r := n.CLI("", "get", kind, name, "-o", "jsonpath={"+path+"}") // fails while the field is missing
				return r.Stdout == want
			})
		}
		shows("pvc", "data", ".capacityBytes", fmt.Sprint(128<<20))
		shows("pvc", "data", ".nodeBytes", fmt.Sprint(128<<20))
		shows("pvc", "data", ".currentVolumeAttributesClassName", "fast")
		shows("pvc", "clone", ".phase", "Bound")
		shows("snapshots", "cut", ".phase", "Ready")
		n.Do("", "snapshot", "restore", "cut", "pvc/copy")
		n.Apply(harness.Pod("reader", harness.FromClaim("copy", "copy"), harness.FromClaim("clone", "clone")))
		n.Mounted("reader")
		for _, volume := range []string{"copy", "clone"} {
			wantFile(t, filepath.Join(n.HostPath("reader", volume), "f"), "before")
		}
		wantFile(t, filepath.Join(n.HostPath("again", "data"), "f"), "before")
		n.DeletePods("reader", "again")
		n.DeleteClaims("copy", "clone", "data")
		n.Do("", "delete", "snapshot", "cut")
		n.nothingLeft()
	})
}
