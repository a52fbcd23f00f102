package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// node is a daemon with all its directories, and a driver beside it.
type node struct {
	*harness.Node
	daemon *harness.Process
	driver *driver
	flags  []string // besides those with paths
}

// newNode starts a daemon and a driver, and returns once the daemon knows the driver.
func newNode(t *testing.T, k kind) *node {
	t.Helper()
	n := newPlace(t)
	n.driver = newDriver(n, k)
	n.start()
	n.DriverUp(k.name)
	return n
}

// newPlace makes the directories of a node without starting anything.
func newPlace(t *testing.T) *node {
	t.Helper()
	n := &node{Node: harness.NewNode(t, program, "run/api.sock")}
	if err := os.Mkdir(n.manifests(), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.clean)
	return n
}

func (n *node) manifests() string { return n.Path("manifests") }
func (n *node) registry() string  { return filepath.Join(n.Root, "plugins_registry") }

// clean runs after all processes of the test were killed.
func (n *node) clean() {
	n.ShowIfFailed(n.daemon)
	if n.driver != nil {
		n.ShowIfFailed(n.driver.proc)
		if n.driver.strict {
			n.judged()
		}
	}
}

// start starts the daemon and returns when it answers.
func (n *node) start() {
	n.T.Helper()
	args := n.Daemon(append([]string{"--manifests", n.manifests()}, n.flags...)...)
	n.daemon = n.Answered(func() *harness.Process { return start(n.T, n.Dir, daemon, args...) })
}

// asWanted waits until the pod is ready and no step is pending, not even the renewal of a
// volume that the pod may already use.
func (n *node) asWanted(pod string) {
	n.T.Helper()
	harness.Until(n.Node, "pod "+pod+" to be as wanted", n.API.WatchPods, func(all map[string]server.PodStatus) bool {
		for _, p := range all {
			busy := slices.ContainsFunc(p.Volumes, func(v server.PodVolumeStatus) bool { return v.Step != "" })
			if p.Pod.Name == pod && p.Ready && !busy {
				return true
			}
		}
		return false
	})
}

// blocked waits until one of the pod's volumes says with all words what blocks it, and
// returns the reason.
func (n *node) blocked(pod string, words ...string) (reason string) {
	n.T.Helper()
	harness.Until(n.Node, "pod "+pod+" to say what blocks it", n.API.WatchPods, func(all map[string]server.PodStatus) bool {
		for _, p := range all {
			for _, v := range p.Volumes {
				if p.Pod.Name == pod && !v.Mounted && (v.BlockedBy != "" || v.Retry.Error != "") {
					reason = v.BlockedBy + " " + v.Retry.Error
					return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(reason, w) })
				}
			}
		}
		return false
	})
	return reason
}
