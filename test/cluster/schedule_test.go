//go:build cluster

package cluster

import (
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A claim that waits for its first consumer gets its volume where the scheduler places that
// pod, by the topology that the node's driver reports. The scheduler places a later pod
// without a selector there too, and that pod has the data.
func TestTheSchedulerFollowsTheVolume(t *testing.T) {
	t.Parallel()
	storage(t)
	there, other := asNode(t, "zone-b"), asNode(t, "zone-a")
	for _, n := range []*node{there, other} {
		n.provisions()
		n.eventually("the node is labelled with its topology", func() bool {
			o, err := control.client.CoreV1().Nodes().Get(t.Context(), n.name, metav1.GetOptions{})
			return err == nil && o.Labels["topology."+driverName+"/node"] == n.name
		})
	}
	create(t, there.name, "placed")
	must(t, os.WriteFile(filepath.Join(there.mounted("placed"), "hello"), []byte("world"), 0o600))
	there.gone("placed")
	createPod(t, podWith("", "follows", fromClaim("placed")))
	there.hasFile(filepath.Join(there.at("follows", "data"), "hello"), "world")
	there.gone("follows")
	if len(other.mounts()) > 0 {
		t.Errorf("mounted on the other node: %v", other.mounts())
	}
}
