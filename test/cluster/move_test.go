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

// asNode starts a daemon under the node's own identity.
func asNode(t *testing.T, name string) *node {
	t.Helper()
	id, err := control.identity("system:node:"+name, "system:nodes")
	must(t, err)
	return newNode(t, name, id)
}

// Three nodes want one ReadWriteOnce volume in turn, each before the previous one has
// released it. Kubernetes detaches by node.status.volumesInUse. The strict driver checks
// that the volume is never attached or staged twice, nor detached while it is staged. Each
// node finds what the earlier ones wrote.
//
// Items: A02, A21, A23, A24.
// Faults: A172.
func TestAVolumeMovesBetweenThreeNodes(t *testing.T) {
	t.Parallel()
	const rounds = 6
	s := newShared(t, "move.test", map[string]string{"move-a": "east", "move-b": "east", "move-c": "east"}, "csi-provisioner", "csi-attacher")
	var nodes []*node
	for _, name := range []string{"move-a", "move-b", "move-c"} {
		n := asNode(t, name)
		s.serve(n)
		nodes = append(nodes, n)
	}
	s.claim("moving", "1Gi", nil)
	createPod(t, podWith(nodes[0].name, "mover-0", fromClaim("moving")))
	for i := range rounds {
		n := nodes[i%len(nodes)]
		file := filepath.Join(n.at(fmt.Sprintf("mover-%d", i), "data"), "log")
		before, err := os.ReadFile(file)
		if err != nil && i > 0 {
			t.Fatal(err)
		}
		if lines := strings.Count(string(before), "\n"); lines != i {
			t.Errorf("round %d: %d lines are there", i, lines)
		}
		if err := os.WriteFile(file, append(before, n.name+"\n"...), 0o600); err != nil {
			t.Fatal(err)
		}
		if at := s.volume("moving").NodeID; at != n.name {
			t.Errorf("round %d: attached to %q, want %s", i, at, n.name)
		}
		if i+1 < rounds { // the next pod must wait
			createPod(t, podWith(nodes[(i+1)%len(nodes)].name, fmt.Sprintf("mover-%d", i+1), fromClaim("moving")))
		}
		deletePod(t, fmt.Sprintf("mover-%d", i))
	}
	for _, n := range nodes {
		n.eventually("nothing is left", func() bool { return len(n.mounts()) == 0 && len(n.inUse()) == 0 })
	}
	if stages := s.count("NodeStageVolume", csistrict.EventEnd); stages != rounds {
		t.Errorf("staged %d times, want %d", stages, rounds)
	}
	s.unclaim(nodes[0], "moving")
}
