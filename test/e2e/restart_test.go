package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/localdriver"
)

// mountIDs returns the ids of all mounts of the node.
func (n *node) mountIDs() map[string]uint64 {
	n.t.Helper()
	ids := map[string]uint64{}
	for _, path := range mountsBelow(n.t, n.root) {
		if _, twice := ids[path]; twice {
			n.t.Errorf("mounted twice at %s", path)
		}
		ids[path] = mountID(n.t, path)
	}
	return ids
}

func (n *node) wantMounts(when string, want map[string]uint64) {
	n.t.Helper()
	if got := n.mountIDs(); !maps.Equal(got, want) {
		n.t.Errorf("mounts %s: got %v, want %v", when, got, want)
	}
}

// Items: E01.
// Scenarios: U-180.
func TestDaemonKilledFindsItsMountsAgain(t *testing.T) {
	eachKind(t, func(n *node) {
		p := n.driver.proxy
		disk := fromClaim("disk", "disk")
		disk.block = true
		n.apply(n.driver.class(), claim("data", "64Mi", fileSystem, rwo), claim("disk", "32Mi", block, rwo),
			pod("web", fromClaim("data", "data"), volume{name: "memory", source: "emptyDir: {medium: Memory}"}), pod("db", disk))
		n.mounted("web")
		n.mounted("db")
		// The intents of another pod make durable what is known of these.
		n.apply(pod("last", volume{name: "scratch", source: "emptyDir: {}"}))
		n.mounted("last")
		write(n.t, filepath.Join(n.hostPath("web", "data"), "f"), "before")
		write(n.t, filepath.Join(n.hostPath("last", "scratch"), "f"), "before")
		ids := n.mountIDs()
		made := []string{"NodeStageVolume", "NodePublishVolume", "ControllerPublishVolume", "CreateVolume"}
		before := p.count(made...)

		n.daemon.kill()
		n.wantMounts("without a daemon", ids)
		n.start()
		for _, pod := range []string{"web", "db", "last"} {
			n.mounted(pod)
		}
		n.wantMounts("after the restart", ids)
		if got := p.count(made...) - before; got != 0 {
			n.t.Errorf("calls for what was there: got %d, want 0", got)
		}
		if got := p.count("NodeUnpublishVolume", "NodeUnstageVolume"); got != 0 {
			n.t.Errorf("removals: got %d, want 0", got)
		}
		wantFile(n.t, filepath.Join(n.hostPath("web", "data"), "f"), "before")
		wantFile(n.t, filepath.Join(n.hostPath("last", "scratch"), "f"), "before")

		n.daemon.stop()
		n.wantMounts("after the daemon was told to end", ids)
		n.start()
		n.deletePod("web", "db", "last")
		n.deleteClaim("data", "disk")
		n.nothingLeft()
	})
}

// The daemon is killed while it mounts: whatever was begun is finished.
func TestDaemonKilledAtWorkFinishesIt(t *testing.T) {
	eachKind(t, func(n *node) {
		for round, name := range []string{"CreateVolume", "NodeStageVolume", "NodePublishVolume"} {
			var pods, claims, docs []string
			for i := range 5 {
				pods = append(pods, fmt.Sprintf("pod-%d-%d", round, i))
				claims = append(claims, fmt.Sprintf("claim-%d-%d", round, i))
				docs = append(docs, claim(claims[i], "64Mi", fileSystem, rwo), pod(pods[i], fromClaim("data", claims[i])))
			}
			seen := n.driver.proxy.count(name)
			n.apply(append(docs, n.driver.class())...)
			if err := n.driver.proxy.await(n.t.Context(), seen+2, name); err != nil {
				n.t.Fatal(err)
			}
			n.daemon.kill()
			n.start()
			for _, pod := range pods {
				n.mounted(pod)
			}
			n.mountIDs() // fails where one is mounted twice
			seen = n.driver.proxy.count("NodeUnpublishVolume")
			for _, pod := range pods {
				n.do("", "delete", "pod", pod)
			}
			if err := n.driver.proxy.await(n.t.Context(), seen+2, "NodeUnpublishVolume"); err != nil {
				n.t.Fatal(err)
			}
			n.daemon.kill()
			n.start()
			n.deleteClaim(claims...)
		}
		n.nothingLeft()
	})
}

// Items: B11, E02, N-77.
// Scenarios: U-181.
func TestPodTakenBackWhileNoDaemonRuns(t *testing.T) {
	eachKind(t, func(n *node) {
		file := filepath.Join(n.manifests(), "web.yaml")
		n.apply(n.driver.class(), claim("data", "64Mi", fileSystem, rwo))
		moveIn(n.t, file, pod("web", fromClaim("data", "data")))
		n.mounted("web")
		n.daemon.kill()
		if err := os.Remove(file); err != nil {
			n.t.Fatal(err)
		}
		n.start()
		n.do("", "wait", "pod", "web", "--for=unmounted", "--timeout", patience.String())
		n.deleteClaim("data")
		n.nothingLeft()
	})
}

// Items: C18, C19.
func TestDriverKilledComesBack(t *testing.T) {
	eachKind(t, func(n *node) {
		n.apply(n.driver.class(), claim("data", "64Mi", fileSystem, rwo), claim("more", "64Mi", fileSystem, rwo),
			pod("stays", fromClaim("data", "data")), pod("goes", fromClaim("data", "data")))
		n.mounted("stays")
		n.mounted("goes")
		ids := n.mountIDs()
		n.driver.proc.kill()
		n.wantMounts("without the driver", ids)
		n.do("", "delete", "pod", "goes")
		n.apply(pod("comes", fromClaim("more", "more")))
		if reason := n.blocked("comes"); reason == "" {
			n.t.Error("a pod that waits for a dead driver does not say so")
		}
		r := n.cli("", "wait", "pod", "comes", "--timeout", "1s")
		if r.code != 124 || strings.Contains(r.stderr, "timed out waiting for the condition") {
			n.t.Errorf("wait without the driver: got exit code %d and %q, want 124 and a reason", r.code, r.stderr)
		}
		n.driver.start()
		n.mounted("comes")
		n.mounted("stays")
		n.do("", "wait", "pod", "goes", "--for=unmounted", "--timeout", patience.String())
		stays := n.hostPath("stays", "data")
		if mountID(n.t, stays) != ids[stays] {
			n.t.Error("the mount that was to stay is another one")
		}
		n.deletePod("stays", "comes")
		n.deleteClaim("data", "more")
		n.nothingLeft()
	})
}

// The driver is killed as each of its calls comes to it, and again when it has
// answered and nobody has heard of it: what was begun is finished after it is
// back, and nothing is mounted twice.
func TestDriverKilledAtWorkIsCalledAgain(t *testing.T) {
	eachKind(t, func(n *node) {
		n.apply(n.driver.class(), claim("data", "64Mi", fileSystem, rwo))
		for _, name := range []string{"NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"} {
			for _, after := range []bool{false, true} {
				removes := strings.HasPrefix(name, "NodeUn")
				if removes {
					n.apply(pod("web", fromClaim("data", "data")))
					n.mounted("web")
				}
				cut := n.driver.proxy.hold(name, after)
				if removes {
					n.do("", "delete", "pod", "web")
				} else {
					n.apply(pod("web", fromClaim("data", "data")))
				}
				select {
				case <-cut.reached:
				case <-time.After(patience):
					n.t.Fatalf("%s is never called", name)
				}
				n.driver.proc.kill()
				n.driver.start()
				close(cut.on)
				if !removes {
					n.mounted("web")
					n.mountIDs() // fails where one is mounted twice
					n.do("", "delete", "pod", "web")
				}
				n.noVolumes()
			}
		}
		n.deleteClaim("data")
		n.nothingLeft()
	})
}

// A local driver that registers itself, as a process beside the daemon, comes
// back at the same place with a new registration socket.
func TestDriverThatRegistersItselfComesBack(t *testing.T) {
	localOnly(t)
	t.Parallel()
	n := newPlace(t)
	k := kind{name: localdriver.DefaultName}
	begin := func() *process {
		return start(t, n.dir, daemon, "local-driver", "--node-id", nodeName, "--root-dir", n.root, "--state-dir", n.path("driver-state"))
	}
	n.start()
	proc := begin()
	n.driverUp(k.name)
	n.apply(k.class(), claim("data", "64Mi", fileSystem, rwo), pod("web", fromClaim("data", "data")))
	n.mounted("web")
	for range 3 {
		proc.kill()
		proc = begin()
		n.apply(claim("more", "64Mi", fileSystem, rwo), pod("comes", fromClaim("more", "more")))
		n.mounted("comes")
		n.deletePod("comes")
	}
	n.deletePod("web")
	n.deleteClaim("data", "more")
	n.nothingLeft()
}

func TestEmbeddedDriverServesAndSurvives(t *testing.T) {
	localOnly(t)
	t.Parallel()
	n := newPlace(t)
	n.flags = []string{"--local-driver"}
	n.start()
	k := kind{name: localdriver.DefaultName}
	n.driverUp(k.name)
	n.apply(k.class(), claim("data", "64Mi", fileSystem, rwo), pod("web", fromClaim("data", "data")))
	n.mounted("web")
	write(t, filepath.Join(n.hostPath("web", "data"), "f"), "before")
	wantSize(t, n.hostPath("web", "data"), 64<<20)
	ids := n.mountIDs()
	n.daemon.kill()
	n.start()
	n.mounted("web")
	n.wantMounts("after the restart", ids)
	wantFile(t, filepath.Join(n.hostPath("web", "data"), "f"), "before")
	n.deletePod("web")
	n.deleteClaim("data")
	n.nothingLeft()
}
