package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// A volume whose record was forgotten is not deleted while the mount table has it, also after a restart. It can be
// mounted again, as before.
func TestForgottenVolumeThatIsMountedIsNotDeleted(t *testing.T) {
	eachKind(t, func(n *node) {
		t, p := n.T, n.driver.proxy
		web := harness.Pod("web", harness.FromClaim("data", "data"))
		n.Apply(n.driver.class(), claim("data", "64Mi", fileSystem, rwo), web)
		n.Mounted("web")
		path := n.HostPath("web", "data")
		write(t, filepath.Join(path, "marker"), "of web")
		n.driver.proc.Kill() // so that the pod's end unmounts nothing
		n.Remove("web")
		n.Eventually("the record to be forgotten", func() bool {
			all, err := n.API.Volumes(t.Context())
			must(t, err)
			if len(all) == 0 {
				return true
			}
			_, err = n.API.Forget(t.Context(), string(all[0].Volume.ID), "a test", true)
			return err == nil
		})
		n.driver.start()
		n.DriverUp(n.driver.name)
		refused := func(when string) {
			t.Helper()
			if r := n.CLI("", "delete", "pvc", "data"); r.Code == 0 || !strings.Contains(r.Stderr, "umount "+path) {
				t.Errorf("deleted while it is mounted, %s: %d %s%s", when, r.Code, r.Stdout, r.Stderr)
			}
			if got := p.count("DeleteVolume", "ControllerUnpublishVolume"); got != 0 {
				t.Fatalf("%d calls of DeleteVolume and ControllerUnpublishVolume, %s", got, when)
			}
			wantFile(t, filepath.Join(path, "marker"), "of web")
		}
		refused("after forget")
		n.daemon.Kill()
		n.start()
		n.DriverUp(n.driver.name)
		harness.Until(n.Node, "the claim to be there", n.API.WatchClaims, func(all map[string]server.ClaimStatus) bool {
			return all["default/data"].Volume != ""
		})
		refused("after a restart")
		n.Apply(web)
		n.Mounted("web")
		wantFile(t, filepath.Join(n.HostPath("web", "data"), "marker"), "of web")
		n.DeletePods("web")
		n.DeleteClaims("data")
		n.nothingLeft()
	})
}
