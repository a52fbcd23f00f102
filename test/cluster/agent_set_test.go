//go:build cluster

package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
)

// set is a StatefulSet on nodes with agents. Each start of a container adds a line to the
// log in its volume, and the test knows the expected lines.
type set struct {
	t       *testing.T
	name    string
	nodes   []*agentNode
	storage *shared
	turn    string
	lines   [][]string // the expected log of each replica
}

const replicas = 3

// newSet makes the StatefulSet, and waits until it is ready.
func newSet(t *testing.T, name string, storage *shared, nodes []*agentNode) *set {
	t.Helper()
	s := &set{t: t, name: name, nodes: nodes, storage: storage, turn: "1", lines: make([][]string, replicas)}
	p := boxPod("", "", `echo $TURN >> /data/log; `+forever)
	p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "TURN", Value: s.turn}}
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	p.Spec.NodeSelector = map[string]string{"set": name}
	p.Spec.Tolerations = nil // a cordon is a taint, which a toleration would defeat
	labels, n := map[string]string{"app": name}, int32(replicas)
	p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
	}}
	_, err := control.client.AppsV1().StatefulSets("default").Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels}, ServiceName: name,
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: p.Spec},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: corev1.PersistentVolumeClaimSpec{
					StorageClassName: &storage.name, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}},
				},
			}},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	for i := range replicas {
		s.started(i)
	}
	s.ready()
	return s
}

// pod returns the name of a replica, and claim the name of its claim.
func (s *set) pod(i int) string   { return fmt.Sprintf("%s-%d", s.name, i) }
func (s *set) claim(i int) string { return "data-" + s.pod(i) }

// started notes that a replica's container starts once more.
func (s *set) started(i int) { s.lines[i] = append(s.lines[i], s.turn) }

// ready waits until all replicas run the newest template. It checks that each replica has
// the expected log and runs on the node to which its volume is attached.
func (s *set) ready() (pods []*corev1.Pod) {
	s.t.Helper()
	s.nodes[0].eventually("StatefulSet "+s.name+" is ready", func() bool {
		o, err := control.client.AppsV1().StatefulSets("default").Get(s.t.Context(), s.name, metav1.GetOptions{})
		if err != nil || o.Status.ObservedGeneration < o.Generation || o.Status.ReadyReplicas != replicas || o.Status.UpdatedReplicas != replicas {
			return false
		}
		pods = nil
		for i := range replicas {
			p, err := control.client.CoreV1().Pods("default").Get(s.t.Context(), s.pod(i), metav1.GetOptions{})
			if err != nil || p.DeletionTimestamp != nil || !podReady(p) || p.Labels[appsv1.StatefulSetRevisionLabel] != o.Status.UpdateRevision {
				return false
			}
			pods = append(pods, p)
		}
		return true
	})
	for i, p := range pods {
		var got string
		want := strings.Join(s.lines[i], "\n")
		s.nodes[0].eventually(fmt.Sprintf("the log of %s is %q", p.Name, want), func() bool {
			got = s.nodes[0].runtime.in(p, "cat /data/log 2>/dev/null; true") // the first line may not be written yet
			return len(got) >= len(want)
		})
		if got != want {
			s.t.Errorf("the log of %s is %q, want %q", p.Name, got, want)
		}
		if at := s.storage.volume(s.claim(i)).NodeID; at != p.Spec.NodeName {
			s.t.Errorf("pod %s is on %s, and its volume is attached to %q", p.Name, p.Spec.NodeName, at)
		}
	}
	return pods
}

// roll changes the template, so that every pod is replaced in turn.
func (s *set) roll(turn string) {
	s.t.Helper()
	s.turn = turn
	s.change(func(o *appsv1.StatefulSet) { o.Spec.Template.Spec.Containers[0].Env[0].Value = turn })
	for i := range replicas {
		s.started(i)
	}
}

func (s *set) change(change func(*appsv1.StatefulSet)) {
	s.t.Helper()
	for {
		o, err := control.client.AppsV1().StatefulSets("default").Get(s.t.Context(), s.name, metav1.GetOptions{})
		must(s.t, err)
		change(o)
		if _, err = control.client.AppsV1().StatefulSets("default").Update(s.t.Context(), o, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			must(s.t, err)
			return
		}
	}
}

// on returns the node with this name.
func (s *set) on(name string) *agentNode {
	s.t.Helper()
	i := slices.IndexFunc(s.nodes, func(n *agentNode) bool { return n.name == name })
	if i < 0 {
		s.t.Fatalf("no agent has node %q", name)
	}
	return s.nodes[i]
}

// cordon makes a node unschedulable, or schedulable again.
func (n *agentNode) cordon(is bool) {
	n.t.Helper()
	n.update(func(o *corev1.Node) { o.Spec.Unschedulable = is })
}

// evict evicts a pod as `kubectl drain` does.
func evict(t *testing.T, p *corev1.Pod) {
	t.Helper()
	must(t, control.client.CoreV1().Pods(p.Namespace).EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace}}))
}

// emptied waits until no volume is left on the node.
func (n *agentNode) emptied() {
	n.t.Helper()
	n.eventually("node "+n.name+" has no volume", func() bool { return len(n.mounts()) == 0 && len(n.inUse()) == 0 })
}

// ids returns the ids of the pods' containers.
func ids(pods []*corev1.Pod) (out []string) {
	for _, p := range pods {
		out = append(out, containerOf(p))
	}
	return out
}

// A StatefulSet with three claims lives its whole life on nodes with agents: it is made and
// rolled, a replica moves, a claim grows, the agents are killed and restarted, and a node
// is drained while its agent is killed. Each replica has its data every time, and nothing
// is detached while it may be mounted (N-104, which the strict driver checks).
//
// Items: N-104.
// Faults: A191.
func TestAStatefulSetLivesOnAgents(t *testing.T) {
	storage := newShared(t, "set.test", map[string]string{"set-a": "east", "set-b": "east", "set-c": "east"}, "csi-provisioner", "csi-attacher", "csi-resizer")
	nodes := newAgents(t, "set-a", "set-b", "set-c")
	for _, n := range nodes {
		n.update(func(o *corev1.Node) { o.Labels["set"] = "db" })
		storage.serve(n.node)
	}
	s := newSet(t, "db", storage, nodes)

	s.roll("2")
	pods := s.ready()

	before := pods[1]
	from := s.on(before.Spec.NodeName)
	from.cordon(true)
	must(t, control.client.CoreV1().Pods("default").Delete(t.Context(), before.Name, metav1.DeleteOptions{}))
	s.started(1)
	from.podUntil(before.Name, "is another one", func(p *corev1.Pod) bool { return p.UID != before.UID })
	pods = s.ready()
	if pods[1].Spec.NodeName == from.name {
		t.Errorf("%s came to a node that takes no pods", before.Name)
	}
	from.cordon(false)

	running := ids(pods)
	for _, n := range nodes {
		n.kill()
	}
	storage.resize(s.claim(0), "2Gi")
	for _, n := range nodes {
		n.startAgent()
	}
	storage.hasSize(s.on(pods[0].Spec.NodeName).node, s.claim(0), "2Gi")
	if v := storage.volume(s.claim(0)); v.NodeSizeBytes != 2<<30 {
		t.Errorf("the node's driver was asked for %d bytes last", v.NodeSizeBytes)
	}
	for _, n := range nodes {
		n.hasDriver(storage.name)
	}
	if now := ids(s.ready()); !slices.Equal(now, running) {
		t.Errorf("after the agents were killed the containers are %v, before %v", now, running)
	}

	drained := s.on(pods[2].Spec.NodeName)
	drained.cordon(true)
	for i, p := range pods {
		if p.Spec.NodeName == drained.name {
			evict(t, p)
			s.started(i)
		}
	}
	drained.kill() // while it ends the evicted pods
	drained.startAgent()
	drained.podUntil(pods[2].Name, "is another one", func(p *corev1.Pod) bool { return p.UID != pods[2].UID })
	s.ready()
	drained.emptied()
	drained.cordon(false)
	if n := storage.count("ControllerUnpublishVolume", csistrict.EventEnd); n < 2 {
		t.Errorf("detached %d times, and two replicas moved", n)
	}
	s.scaleTo(0)
	for _, n := range nodes {
		n.emptied()
	}
	must(t, control.client.AppsV1().StatefulSets("default").Delete(t.Context(), s.name, metav1.DeleteOptions{}))
	for i := range replicas {
		storage.unclaim(nodes[0].node, s.claim(i))
	}
}

// scaleTo changes the number of replicas, and waits until the surplus pods have ended.
func (s *set) scaleTo(n int32) {
	s.t.Helper()
	s.change(func(o *appsv1.StatefulSet) { o.Spec.Replicas = &n })
	s.nodes[0].eventually("StatefulSet "+s.name+" is scaled", func() bool {
		o, err := control.client.AppsV1().StatefulSets("default").Get(s.t.Context(), s.name, metav1.GetOptions{})
		return err == nil && o.Status.ObservedGeneration >= o.Generation && o.Status.Replicas == n
	})
}
