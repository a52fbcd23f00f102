//go:build cluster

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
)

// The calls during which the caller is killed, in the order of a volume's life on a node.
var (
	cutComing = []string{"ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume"}
	cutGoing  = []string{"NodeUnpublishVolume", "NodeUnstageVolume", "ControllerUnpublishVolume"}
)

// delayed makes the driver delay one of each of the calls: until the caller is dead,
// without an effect, or briefly, with its effect although the caller is dead.
func (s *shared) delayed(effect bool, calls ...string) {
	s.t.Helper()
	var script csistrict.Script
	for _, call := range calls {
		f := csistrict.Fault{ID: call, Call: call, Times: 1, Delay: int(patience.Milliseconds())}
		if effect {
			f.ID, f.Delay, f.IgnoreCancel = call+" with effect", 300, true
		}
		script.Faults = append(script.Faults, f)
	}
	must(s.t, csistrict.WriteScript(s.dir, script))
}

// killIn runs act, and kills the caller in the middle of each of the calls, one after the
// other.
func (s *shared) killIn(on *node, effect bool, calls []string, act func()) {
	s.t.Helper()
	s.delayed(effect, calls...)
	made := map[string]int{}
	for _, call := range calls {
		made[call] = s.count(call, csistrict.EventBegin)
	}
	act()
	for _, call := range calls {
		on.eventually(call+" begins", func() bool { return s.count(call, csistrict.EventBegin) > made[call] })
		switch {
		case strings.HasPrefix(call, "Node"):
			on.kill()
			on.start()
		case strings.HasPrefix(call, "Controller"):
			s.sidecars["csi-attacher"].kill()
		default:
			s.sidecars["csi-provisioner"].kill()
		}
	}
}

// external-provisioner, external-attacher and the daemons of two nodes are killed in the
// middle of each of their calls: on the first node of calls that then have no effect, on
// the other node of calls that have their effect anyway. Each is restarted and goes on. The
// volume is made once, moves with its data, and is detached only when no node has it.
//
// Faults: A173.
func TestKilledInTheMiddleOfEachCall(t *testing.T) {
	t.Parallel()
	s := newShared(t, "killed.test", map[string]string{"killed-a": "east", "killed-b": "east"}, "csi-provisioner", "csi-attacher")
	nodes := []*node{asNode(t, "killed-a"), asNode(t, "killed-b")}
	for _, n := range nodes {
		s.serve(n)
	}
	s.claim("killed", "1Gi", nil)
	for i, n := range nodes {
		pod, effect, coming := fmt.Sprintf("killed-%d", i), i > 0, cutComing
		if i == 0 {
			coming = append([]string{"CreateVolume"}, coming...)
		}
		s.killIn(n, effect, coming, func() { createPod(t, podWith(n.name, pod, fromClaim("killed"))) })
		file := filepath.Join(n.at(pod, "data"), "file")
		if i == 0 {
			must(t, os.WriteFile(file, []byte("kept"), 0o600))
		}
		n.hasFile(file, "kept")
		s.killIn(n, effect, cutGoing, func() { deletePod(t, pod) })
		n.eventually("nothing is left", func() bool {
			return len(n.mounts()) == 0 && len(n.inUse()) == 0 && s.volume("killed").Attach.Phase == csistrict.Absent
		})
	}
	if all := s.model().Volumes; len(all) != 1 {
		t.Errorf("volumes: %v", all)
	}
	var deleted func() bool
	s.killIn(nodes[0], false, []string{"DeleteVolume"}, func() { deleted = s.unclaimed("killed") })
	nodes[0].eventually("the volume is deleted", deleted)
}
