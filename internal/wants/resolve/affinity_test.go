package resolve_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
)

// In a cluster the Node's labels decide where a volume of any kind may be, and nothing is decided before the Node has
// been read.
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
		"no Node":       {nil, "", zone(corev1.NodeSelectorOpIn, "a"), "Node node-1, whose labels decide, not found"},
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

// Without a cluster the labels that the operator gave the node decide, for CSI volumes and built-in kinds. A CSI
// driver's topology decides about other labels.
func TestLabelsOfTheOperatorDecideWithoutACluster(t *testing.T) {
	in := func(key string, op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: op, Values: values}
	}
	const host = corev1.LabelHostname
	for name, c := range map[string]struct {
		needs      corev1.NodeSelectorRequirement
		csi, local string // the expected problems
	}{
		"its zone":        {in("zone", corev1.NodeSelectorOpIn, "a", "b"), "", ""},
		"another zone":    {in("zone", corev1.NodeSelectorOpIn, "b"), "whose known labels are (kubernetes.io/hostname=node-1, rack=7, zone=a)", "whose known labels are (kubernetes.io/hostname=node-1, rack=7, zone=a)"},
		"not its zone":    {in("zone", corev1.NodeSelectorOpNotIn, "a"), "none of its terms", "none of its terms"},
		"not another":     {in("zone", corev1.NodeSelectorOpNotIn, "b"), "", ""},
		"any zone":        {in("zone", corev1.NodeSelectorOpExists), "", ""},
		"without a zone":  {in("zone", corev1.NodeSelectorOpDoesNotExist), "none of its terms", "none of its terms"},
		"its rack":        {in("rack", corev1.NodeSelectorOpGt, "6"), "", ""},
		"its name":        {in(host, corev1.NodeSelectorOpIn, "node-1"), "", ""},
		"a label unknown": {in("shelf", corev1.NodeSelectorOpIn, "1"), "", "found shelf, want kubernetes.io/hostname or rack or zone, no such term, or --node-label=shelf=VALUE"},
	} {
		for kind, w := range map[string]*world{"csi": read(t, "testdata/base.yaml"), "local": ofKind(t, localAt("/mnt/disk"))} {
			w.config.NodeLabels = map[string]string{"zone": "a", "rack": "7"}
			w.volume().Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{c.needs}}},
			}}
			problem := map[string]string{"csi": c.csi, "local": c.local}[kind]
			got := w.only(t)
			if (got.Problem == "") != (problem == "") || !strings.Contains(got.Problem, problem) {
				t.Errorf("%s, %s: got %q, want %q", name, kind, got.Problem, problem)
			}
			if wants := kind == "csi" && name == "a label unknown"; wants != (len(got.Topology) > 0) {
				t.Errorf("%s, %s: topology %v", name, kind, got.Topology)
			}
		}
	}
}

// The memory that pods may use bounds emptyDirs of medium Memory, and is the limit of a container without one. In a
// cluster it is the Node's allocatable memory, not the node's total.
func TestTheNodesAllocatableBoundsVolumesInMemory(t *testing.T) {
	pod := `
apiVersion: v1
kind: Pod
metadata: {name: web, uid: u-1}
spec:
  containers: [{name: c, image: i, env: [{name: M, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}],
    volumeMounts: [{name: v, mountPath: /v, subPathExpr: $(M)}]}]
  volumes: [{name: v, emptyDir: {medium: Memory@}}]
`
	for _, c := range []struct {
		limit             string
		cluster, allocate bool
		want              int64 // bytes, 0 for none
		memory            string
	}{
		{"", false, false, 0, "8192"},
		{"", true, false, 8 << 30, "8192"},
		{"", true, true, 6 << 30, "6144"},
		{", sizeLimit: 100Gi", false, false, 8 << 30, "8192"},
		{", sizeLimit: 100Gi", true, true, 6 << 30, "6144"},
		{", sizeLimit: 1Gi", true, true, 1 << 30, "6144"},
	} {
		w := parse(t, strings.Replace(pod, "@", c.limit, 1))
		w.config.ClusterAttach = c.cluster
		w.config.Allocatable = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("8Gi")}
		if c.allocate {
			node := &resolve.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Allocatable: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("6Gi")}}
			w.objects[resolve.Key{Kind: resolve.KindNode, Name: "node-1"}] = node
		}
		if got := w.only(t); got.Problem != "" || got.SizeBytes != c.want {
			t.Errorf("%+v: got %d bytes (%s)", c, got.SizeBytes, got.Problem)
		}
		mounts, err := resolve.Container(w.pod(), "c", w, w.config, resolve.Runtime{})
		if err != nil || mounts[0].SubPath != c.memory {
			t.Errorf("%+v: the container's limit of memory: got %+v, %v", c, mounts, err)
		}
	}
}
