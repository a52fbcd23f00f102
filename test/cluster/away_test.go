//go:build cluster

package cluster

import (
	"fmt"
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"

	api "github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// A node with many pods is cut off: there is one problem, and none once the node is back.
//
// Faults: A175.
func TestAnOutageIsOneProblem(t *testing.T) {
	t.Parallel()
	no := false
	a := newArray(t, "away.test", &storagev1.CSIDriverSpec{AttachRequired: &no})
	id, err := control.identity("system:node:away", "system:nodes")
	must(t, err)
	id, line := wired(t, id)
	n := newNode(t, "away", id)
	a.serve(n)
	const pods = 4
	for i := range pods {
		name := fmt.Sprint("away-", i)
		a.volume(name)
		createPod(t, podWith(n.name, name, fromClaim(name)))
		n.mounted(name)
	}
	line.set(true)
	var all []api.Problem
	n.eventually("one problem has all that waits", func() bool {
		all, err = n.api.Problems(t.Context())
		return err == nil && len(all) == 1 && all[0].Code == api.APIServerAway && len(all[0].Consequences) >= 3
	})
	if p := all[0]; p.Since.IsZero() || !strings.Contains(p.Message, "cannot be reached") || !strings.Contains(p.Message, "/readyz?verbose") {
		t.Errorf("%+v", p)
	}
	line.set(false)
	n.eventually("there is no problem", func() bool {
		all, err := n.api.Problems(t.Context())
		return err == nil && len(all) == 0
	})
	for i := range pods {
		deletePod(t, fmt.Sprint("away-", i))
	}
	n.eventually("nothing is mounted", func() bool { return len(n.mounts()) == 0 })
}
