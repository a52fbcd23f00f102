package resolve_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
)

// In a cluster the Node's labels decide where a volume may be, of CSI and of every
// other kind, and nothing is decided before they are read.
//
// Items: A30.
func TestInAClusterTheNodesLabelsDecide(t *testing.T) {
	node := resolve.Key{Kind: resolve.KindNode, Name: "node-1"}
	of := func(labels map[string]string) *resolve.Node {
		return &resolve.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: labels}}
	}
	zone := func(op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: "zone", Operator: op, Values: values}
	}
	for name, c := range map[string]struct {
		node    *resolve.Node
		unread  string
		needs   corev1.NodeSelectorRequirement
		problem string
	}{
		"the zone":      {of(map[string]string{"zone": "a"}), "", zone(corev1.NodeSelectorOpIn, "a", "b"), ""},
		"another zone":  {of(map[string]string{"zone": "c"}), "", zone(corev1.NodeSelectorOpIn, "a", "b"), "none of its terms matches Node node-1; nodeSelectorTerms[0].matchExpressions[0] wants zone In \"a,b\", and the Node has c"},
		"no zone":       {of(nil), "", zone(corev1.NodeSelectorOpIn, "a"), "wants zone In a, and the Node has none"},
		"not elsewhere": {of(nil), "", zone(corev1.NodeSelectorOpNotIn, "a"), ""},
		"its hostname":  {of(map[string]string{corev1.LabelHostname: "h"}), "", corev1.NodeSelectorRequirement{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"h"}}, ""},
		"its name":      {of(nil), "", corev1.NodeSelectorRequirement{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"node-1"}}, ""},
		"not read":      {nil, "not read yet", zone(corev1.NodeSelectorOpIn, "a"), "Node node-1: not read yet"},
		"no Node":       {nil, "", zone(corev1.NodeSelectorOpIn, "a"), "Node node-1, whose labels decide, is not there"},
	} {
		for kind, w := range map[string]*world{"csi": read(t, "testdata/base.yaml"), "local": ofKind(t, localAt("/mnt/disk"))} {
			w.config.ClusterAttach = true
			w.volume().Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{c.needs}}},
			}}
			if c.node != nil {
				w.objects[node] = c.node
			}
			w.unread = map[resolve.Key]string{node: c.unread}
			got := w.only(t).Problem
			if c.problem == "" && strings.Contains(got, "nodeAffinity") || c.problem != "" && (!strings.HasPrefix(got, "volume pv-1: spec.nodeAffinity.required: ") || !strings.HasSuffix(got, c.problem)) {
				t.Errorf("%s, %s: got %q, want %q", name, kind, got, c.problem)
			}
		}
	}
}
