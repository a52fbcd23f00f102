//go:build cluster

package cluster

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/report"
)

// With the service account of deploy/, the condition and the taint follow the daemon's
// start, stop and crash. A node's own identity may set only the condition, and a problem
// says that it may not remove the taint.
//
// Faults: A187, A188, A190.
func TestTheNodeShowsThatTheDaemonRuns(t *testing.T) {
	t.Parallel()
	_, identity := role(t)
	n := newNodeWith(t, "alive", identity, "--node-condition=10s", "--not-ready-taint")
	show := func(what string, status corev1.ConditionStatus, reason string, taint bool, until func(string, func() bool)) (c corev1.NodeCondition) {
		t.Helper()
		until(what, func() bool {
			var tainted bool
			c, tainted = n.shown()
			return c.Status == status && c.Reason == reason && tainted == taint
		})
		return c
	}
	first := show("it runs", corev1.ConditionTrue, "DaemonRuns", false, n.eventually)
	n.eventually("it has a heartbeat", func() bool {
		c, _ := n.shown()
		return c.LastHeartbeatTime.After(first.LastHeartbeatTime.Time) && c.LastTransitionTime.Equal(&first.LastTransitionTime)
	})
	n.stop()
	show("it was stopped", corev1.ConditionFalse, "DaemonStopped", true, n.eventuallyOff)
	n.start()
	show("it runs again", corev1.ConditionTrue, "DaemonRuns", false, n.eventually)
	n.kill()
	if c, taint := n.shown(); c.Status != corev1.ConditionTrue || taint {
		t.Errorf("a dead daemon says nothing: %+v, taint %v", c, taint)
	}
	n.start()

	own, err := control.identity("system:node:alive-own", "system:nodes")
	must(t, err)
	o := newNodeWith(t, "alive-own", own, "--node-condition=10s", "--not-ready-taint")
	_, err = control.client.CoreV1().Nodes().Patch(t.Context(), o.name, types.MergePatchType,
		[]byte(`{"spec":{"taints":[{"key":"csi-volmgr.dev/agent-not-ready","effect":"NoSchedule"}]}}`), metav1.PatchOptions{})
	must(t, err)
	o.eventually("the refusal is told", func() bool {
		c, taint := o.shown()
		return c.Status == corev1.ConditionTrue && taint && strings.Contains(o.problems(), "run without --not-ready-taint")
	})
}

// shown returns the Node's condition about the daemon, and whether the Node has the taint.
func (n *node) shown() (c corev1.NodeCondition, taint bool) {
	o, err := control.client.CoreV1().Nodes().Get(n.t.Context(), n.name, metav1.GetOptions{})
	if err != nil {
		return c, false
	}
	for _, one := range o.Status.Conditions {
		if one.Type == report.ReadyCondition {
			c = one
		}
	}
	return c, slices.ContainsFunc(o.Spec.Taints, func(t corev1.Taint) bool { return t.Key == report.NotReadyTaint })
}
