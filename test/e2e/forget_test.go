package e2e

import (
	"context"
	"os"
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

// A driver is removed for good. The deletion of its claim waits for ever, so the claim is forgotten, with a word. The claim of
// another namespace stays as it is.
func TestAClaimWithoutADriverIsForgotten(t *testing.T) {
	eachKind(t, func(n *node) {
		t := n.T
		data := claim("data", "64Mi", fileSystem, rwo)
		n.Apply(n.driver.class(), data, strings.Replace(data, "metadata: {", "metadata: {namespace: shop, ", 1))
		until := func(key, phase string) {
			t.Helper()
			harness.Until(n.Node, "claim "+key+" to be "+phase, n.API.WatchClaims, func(all map[string]server.ClaimStatus) bool {
				return all[key].Phase == phase
			})
		}
		until("default/data", "Bound")
		until("shop/data", "Bound")
		refused := func(want string, args ...string) {
			t.Helper()
			if r := n.CLI("", append([]string{"forget", "pvc", "data"}, args...)...); r.Code == 0 || !strings.Contains(r.Stderr, want) {
				t.Errorf("%q: exit code %d, %s%s, want %q", args, r.Code, r.Stdout, r.Stderr, want)
			}
		}
		refused("csi-volmgr delete pvc data", "--reason=it is listed")
		n.driver.proc.Kill()
		sockets, err := filepath.Glob(filepath.Join(n.registry(), "*"))
		must(t, err)
		for _, socket := range sockets {
			must(t, os.Remove(socket))
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			n.API.DeleteClaim(ctx, server.ClaimDeletion{Namespace: "default", Name: "data"}) // it does not end
		}()
		until("default/data", "Deleting")
		cancel()
		<-ended
		n.Eventually("the driver to be unregistered", func() bool {
			return strings.Contains(n.CLI("", "explain", "pvc", "data").Stdout, "--driver-gone")
		})
		refused("--driver-gone", "--reason=it may come back")
		said := ""
		n.Eventually("no call to be in flight", func() bool {
			r := n.CLI("", "forget", "pvc", "data", "--driver-gone", "--reason=the array was scrapped")
			said = r.Stdout
			return r.Code == 0
		})
		log, err := os.ReadFile(filepath.Join(n.Path("state"), "audit.log"))
		must(t, err)
		for _, text := range []string{said, string(log)} {
			if !strings.Contains(text, "may be left at the storage: volume pvc-") || !strings.Contains(text, n.driver.name) {
				t.Errorf("it does not say what may be left: %s", text)
			}
		}
		refused("no such claim", "--driver-gone", "--reason=again")
		until("shop/data", "Bound")
	})
}
