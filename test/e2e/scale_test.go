package e2e

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// Two daemons run on one machine with separate roots, each with a driver of the same name.
// Neither touches the other's files and mounts.
func TestTwoDaemonsLeaveEachOtherAlone(t *testing.T) {
	eachKind(t, func(a *node) {
		b := newNode(a.T, a.driver.kind)
		for _, n := range []*node{a, b} {
			n.Apply(n.driver.class(), claim("data", "64Mi", fileSystem, rwo), harness.Pod("web", harness.FromClaim("data", "data"),
				volume{Name: "memory", Source: "emptyDir: {medium: Memory}"}))
		}
		for _, n := range []*node{a, b} {
			n.Mounted("web")
			write(n.T, filepath.Join(n.HostPath("web", "data"), "f"), n.Dir)
		}
		ids := b.mountIDs()
		a.daemon.Kill()
		a.start()
		a.Mounted("web")
		b.wantMounts("after the other daemon was killed", ids)
		a.DeletePods("web")
		a.DeleteClaims("data")
		a.nothingLeft()
		b.wantMounts("after the other daemon removed all of its own", ids)
		wantFile(b.T, filepath.Join(b.HostPath("web", "data"), "f"), b.Dir)
		b.daemon.Kill()
		b.start()
		b.Mounted("web")
		b.wantMounts("after its own restart", ids)
		b.DeletePods("web")
		b.DeleteClaims("data")
		b.nothingLeft()
	})
}

func TestFiveHundredPods(t *testing.T) {
	localOnly(t) // the test measures the daemon, not a driver
	const count = 500
	k := kinds()[0]
	k.params = map[string]string{"type": "directory"}
	n := newNode(t, k)
	var pods, claims, docs []string
	for i := range count {
		pods = append(pods, harness.Pod(fmt.Sprintf("pod-%d", i), harness.FromClaim("data", fmt.Sprintf("claim-%d", i))))
		claims = append(claims, fmt.Sprintf("claim-%d", i))
		docs = append(docs, claim(claims[i], "1Mi", fileSystem, rwo))
	}
	n.Apply(append(docs, k.class())...)
	n.Apply(pods...)
	harness.Until(n.Node, "all pods to be mounted", n.API.WatchPods, func(all map[string]server.PodStatus) bool {
		ready := 0
		for _, p := range all {
			if p.Ready {
				ready++
			}
		}
		return ready == count
	})
	if got := len(n.mountIDs()); got < count {
		t.Errorf("mounts: got %d, want %d at least", got, count)
	}
	n.Do(manifest(pods...), "delete", "-f", "-")
	n.DeleteClaims(claims...)
	n.nothingLeft()
}
