package e2e

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
)

// Two daemons with roots of their own, on one machine, with a driver of the same
// name each: neither touches what is the other's.
func TestTwoDaemonsLeaveEachOtherAlone(t *testing.T) {
	eachKind(t, func(a *node) {
		b := newNode(a.t, a.driver.kind)
		for _, n := range []*node{a, b} {
			n.apply(n.driver.class(), claim("data", "64Mi", fileSystem, rwo), pod("web", fromClaim("data", "data"),
				volume{name: "memory", source: "emptyDir: {medium: Memory}"}))
		}
		for _, n := range []*node{a, b} {
			n.mounted("web")
			write(n.t, filepath.Join(n.hostPath("web", "data"), "f"), n.dir)
		}
		ids := b.mountIDs()
		a.daemon.kill()
		a.start()
		a.mounted("web")
		b.wantMounts("after the other daemon was killed", ids)
		a.deletePod("web")
		a.deleteClaim("data")
		a.nothingLeft()
		b.wantMounts("after the other daemon removed all of its own", ids)
		wantFile(b.t, filepath.Join(b.hostPath("web", "data"), "f"), b.dir)
		b.daemon.kill()
		b.start()
		b.mounted("web")
		b.wantMounts("after its own restart", ids)
		b.deletePod("web")
		b.deleteClaim("data")
		b.nothingLeft()
	})
}

func TestFiveHundredPods(t *testing.T) {
	localOnly(t) // what is counted is the daemon's work, not another driver's
	const count = 500
	k := kinds()[0]
	k.params = map[string]string{"type": "directory"}
	n := newNode(t, k)
	var pods, claims, docs []string
	for i := range count {
		pods = append(pods, pod(fmt.Sprintf("pod-%d", i), fromClaim("data", fmt.Sprintf("claim-%d", i))))
		claims = append(claims, fmt.Sprintf("claim-%d", i))
		docs = append(docs, claim(claims[i], "1Mi", fileSystem, rwo))
	}
	n.apply(append(docs, k.class())...)
	n.apply(pods...)
	until(n, "all pods to be mounted", n.api.WatchPods, func(all map[string]manager.PodStatus) bool {
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
	n.do(manifest(pods...), "delete", "-f", "-")
	n.deleteClaim(claims...)
	n.nothingLeft()
}
