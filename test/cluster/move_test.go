//go:build cluster

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
)

// asNode starts a daemon under the node's own identity.
func asNode(t *testing.T, name string) *node {
	t.Helper()
	id, err := control.identity("system:node:"+name, "system:nodes")
	must(t, err)
	return newNode(t, name, id)
}

// Three nodes want one ReadWriteOnce volume in turn, each before the one before it
// is through with it: Kubernetes detaches from what node.status.volumesInUse says,
// and the storage sees that it is never attached, nor staged, twice, nor detached
// while it is staged. What each wrote is there for the next.
//
// Items: A02, A21, A23, A24.
func TestAVolumeMovesBetweenThreeNodes(t *testing.T) {
	t.Parallel()
	const rounds = 6
	yes := true
	a := newArray(t, "move.test", &storagev1.CSIDriverSpec{AttachRequired: &yes})
	a.volume("moving")
	var nodes []*node
	for _, name := range []string{"move-a", "move-b", "move-c"} {
		n := asNode(t, name)
		a.serve(n)
		nodes = append(nodes, n)
	}
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
		if at := a.stagedOn("moving"); at != n.name {
			t.Errorf("round %d: staged on %q, want %s", i, at, n.name)
		}
		if i+1 < rounds { // the next one waits, and must
			createPod(t, podWith(nodes[(i+1)%len(nodes)].name, fmt.Sprintf("mover-%d", i+1), fromClaim("moving")))
		}
		deletePod(t, fmt.Sprintf("mover-%d", i))
	}
	for _, n := range nodes {
		n.eventually("nothing is left", func() bool { return len(n.mounts()) == 0 && len(n.inUse()) == 0 })
	}
	if a.stages != rounds {
		t.Errorf("staged %d times, want %d", a.stages, rounds)
	}
}
