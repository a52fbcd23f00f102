package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/localdriver"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// mountIDs returns the ids of the node's mounts by path.
func (n *node) mountIDs() map[string]uint64 {
	n.T.Helper()
	ids := map[string]uint64{}
	for _, path := range n.Mounts() {
		if !strings.HasPrefix(path, n.Root+"/") {
			continue
		}
		if _, twice := ids[path]; twice {
			n.T.Errorf("mounted twice at %s", path)
		}
		ids[path] = mountID(n.T, path)
	}
	return ids
}

func (n *node) wantMounts(when string, want map[string]uint64) {
	n.T.Helper()
	if got := n.mountIDs(); !maps.Equal(got, want) {
		n.T.Errorf("mounts %s: got %v, want %v", when, got, want)
	}
}

// Items: E01.
// Scenarios: U-180.
func TestDaemonKilledFindsItsMountsAgain(t *testing.T) {
	eachKind(t, func(n *node) {
		p := n.driver.proxy
		disk := harness.FromClaim("disk", "disk")
		disk.Block = true
		n.Apply(n.driver.class(), claim("data", "64Mi", fileSystem, rwo), claim("disk", "32Mi", block, rwo),
			harness.Pod("web", harness.FromClaim("data", "data"), volume{Name: "memory", Source: "emptyDir: {medium: Memory}"}), harness.Pod("db", disk))
		n.Mounted("web")
		n.Mounted("db")
		// The intents of another pod make these pods' records durable.
		n.Apply(harness.Pod("last", volume{Name: "scratch", Source: "emptyDir: {}"}))
		n.Mounted("last")
		write(n.T, filepath.Join(n.HostPath("web", "data"), "f"), "before")
		write(n.T, filepath.Join(n.HostPath("last", "scratch"), "f"), "before")
		ids := n.mountIDs()
		made := []string{"NodeStageVolume", "NodePublishVolume", "ControllerPublishVolume", "CreateVolume"}
		before := p.count(made...)

		n.daemon.Kill()
		n.wantMounts("without a daemon", ids)
		n.start()
		for _, pod := range []string{"web", "db", "last"} {
			n.Mounted(pod)
		}
		n.wantMounts("after the restart", ids)
		if got := p.count(made...) - before; got != 0 {
			n.T.Errorf("calls for what was there: got %d, want 0", got)
		}
		if got := p.count("NodeUnpublishVolume", "NodeUnstageVolume"); got != 0 {
			n.T.Errorf("removals: got %d, want 0", got)
		}
		wantFile(n.T, filepath.Join(n.HostPath("web", "data"), "f"), "before")
		wantFile(n.T, filepath.Join(n.HostPath("last", "scratch"), "f"), "before")

		n.daemon.Stop()
		n.wantMounts("after the daemon was told to end", ids)
		n.start()
		n.DeletePods("web", "db", "last")
		n.DeleteClaims("data", "disk")
		n.nothingLeft()
	})
}

// The daemon is killed while it mounts and unmounts: the next one finishes the work.
func TestDaemonKilledAtWorkFinishesIt(t *testing.T) {
	eachKind(t, func(n *node) {
		for round, name := range []string{"CreateVolume", "NodeStageVolume", "NodePublishVolume"} {
			var pods, claims, docs []string
			for i := range 5 {
				pods = append(pods, fmt.Sprintf("pod-%d-%d", round, i))
				claims = append(claims, fmt.Sprintf("claim-%d-%d", round, i))
				docs = append(docs, claim(claims[i], "64Mi", fileSystem, rwo), harness.Pod(pods[i], harness.FromClaim("data", claims[i])))
			}
			seen := n.driver.proxy.count(name)
			n.Apply(append(docs, n.driver.class())...)
			if err := n.driver.proxy.await(n.T.Context(), seen+2, name); err != nil {
				n.T.Fatal(err)
			}
			n.daemon.Kill()
			n.start()
			for _, pod := range pods {
				n.Mounted(pod)
			}
			n.mountIDs() // fails if a path is mounted twice
			seen = n.driver.proxy.count("NodeUnpublishVolume")
			for _, pod := range pods {
				n.Do("", "delete", "pod", pod)
			}
			if err := n.driver.proxy.await(n.T.Context(), seen+2, "NodeUnpublishVolume"); err != nil {
				n.T.Fatal(err)
			}
			n.daemon.Kill()
			n.start()
			n.DeleteClaims(claims...)
		}
		n.nothingLeft()
	})
}

// Items: B11, E02, N-77.
// Scenarios: U-181.
func TestPodTakenBackWhileNoDaemonRuns(t *testing.T) {
	eachKind(t, func(n *node) {
		file := filepath.Join(n.manifests(), "web.yaml")
		n.Apply(n.driver.class(), claim("data", "64Mi", fileSystem, rwo))
		moveIn(n.T, file, harness.Pod("web", harness.FromClaim("data", "data")))
		n.Mounted("web")
		n.daemon.Kill()
		if err := os.Remove(file); err != nil {
			n.T.Fatal(err)
		}
		n.start()
		n.Do("", "wait", "pod", "web", "--for=unmounted", "--timeout", harness.Patience.String())
		n.DeleteClaims("data")
		n.nothingLeft()
	})
}

// Items: C18, C19.
func TestDriverKilledComesBack(t *testing.T) {
	eachKind(t, func(n *node) {
		n.Apply(n.driver.class(), claim("data", "64Mi", fileSystem, rwo), claim("more", "64Mi", fileSystem, rwo),
			harness.Pod("stays", harness.FromClaim("data", "data")), harness.Pod("goes", harness.FromClaim("data", "data")))
		n.Mounted("stays")
		n.Mounted("goes")
		ids := n.mountIDs()
		n.driver.proc.Kill()
		n.wantMounts("without the driver", ids)
		n.Do("", "delete", "pod", "goes")
		n.Apply(harness.Pod("comes", harness.FromClaim("more", "more")))
		if reason := n.blocked("comes"); reason == "" {
			n.T.Error("a pod that waits for a dead driver does not say so")
		}
		r := n.CLI("", "wait", "pod", "comes", "--timeout", "1s")
		if r.Code != 124 || strings.Contains(r.Stderr, "timed out waiting for the condition") {
			n.T.Errorf("wait without the driver: got exit code %d and %q, want 124 and a reason", r.Code, r.Stderr)
		}
		n.driver.start()
		n.Mounted("comes")
		n.Mounted("stays")
		n.Do("", "wait", "pod", "goes", "--for=unmounted", "--timeout", harness.Patience.String())
		stays := n.HostPath("stays", "data")
		if mountID(n.T, stays) != ids[stays] {
			n.T.Error("the mount that was to stay is another one")
		}
		n.DeletePods("stays", "comes")
		n.DeleteClaims("data", "more")
		n.nothingLeft()
	})
}

// The driver is killed when a call arrives, and again after its answer, which the daemon
// does not get. Once the driver is back, the daemon finishes the work and mounts nothing
// twice.
func TestDriverKilledAtWorkIsCalledAgain(t *testing.T) {
	eachKind(t, func(n *node) {
		n.Apply(n.driver.class(), claim("data", "64Mi", fileSystem, rwo))
		for _, name := range []string{"NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"} {
			for _, after := range []bool{false, true} {
				removes := strings.HasPrefix(name, "NodeUn")
				if removes {
					n.Apply(harness.Pod("web", harness.FromClaim("data", "data")))
					n.Mounted("web")
				}
				cut := n.driver.proxy.hold(name, after)
				if removes {
					n.Do("", "delete", "pod", "web")
				} else {
					n.Apply(harness.Pod("web", harness.FromClaim("data", "data")))
				}
				select {
				case <-cut.reached:
				case <-time.After(harness.Patience):
					n.T.Fatalf("%s is never called", name)
				}
				n.driver.proc.Kill()
				n.driver.start()
				close(cut.on)
				if !removes {
					n.Mounted("web")
					n.mountIDs() // fails if a path is mounted twice
					n.Do("", "delete", "pod", "web")
				}
				n.NoVolumes()
			}
		}
		n.DeleteClaims("data")
		n.nothingLeft()
	})
}

// A local driver in a process of its own registers itself. After a kill it returns at the
// same path with a new registration socket.
func TestDriverThatRegistersItselfComesBack(t *testing.T) {
	localOnly(t)
	t.Parallel()
	n := newPlace(t)
	k := kind{name: localdriver.DefaultName}
	begin := func() *harness.Process {
		return start(t, n.Dir, daemon, "local-driver", "--node-id", harness.Name, "--root-dir", n.Root, "--state-dir", n.Path("driver-state"))
	}
	n.start()
	proc := begin()
	n.DriverUp(k.name)
	n.Apply(k.class(), claim("data", "64Mi", fileSystem, rwo), harness.Pod("web", harness.FromClaim("data", "data")))
	n.Mounted("web")
	for range 3 {
		proc.Kill()
		proc = begin()
		n.Apply(claim("more", "64Mi", fileSystem, rwo), harness.Pod("comes", harness.FromClaim("more", "more")))
		n.Mounted("comes")
		n.DeletePods("comes")
	}
	n.DeletePods("web")
	n.DeleteClaims("data", "more")
	n.nothingLeft()
}

func TestEmbeddedDriverServesAndSurvives(t *testing.T) {
	localOnly(t)
	t.Parallel()
	n := newPlace(t)
	n.flags = []string{"--local-driver"}
	n.start()
	k := kind{name: localdriver.DefaultName}
	n.DriverUp(k.name)
	n.Apply(k.class(), claim("data", "64Mi", fileSystem, rwo), harness.Pod("web", harness.FromClaim("data", "data")))
	n.Mounted("web")
	write(t, filepath.Join(n.HostPath("web", "data"), "f"), "before")
	wantSize(t, n.HostPath("web", "data"), 64<<20)
	ids := n.mountIDs()
	n.daemon.Kill()
	n.start()
	n.Mounted("web")
	n.wantMounts("after the restart", ids)
	wantFile(t, filepath.Join(n.HostPath("web", "data"), "f"), "before")
	n.DeletePods("web")
	n.DeleteClaims("data")
	n.nothingLeft()
}
