package report_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/report"
	"github.com/csi-volmgr/csi-volmgr/internal/host/outage"
	"github.com/csi-volmgr/csi-volmgr/test/fakeapi"
)

// shown returns what the Node shows of the daemon: the condition, and whether it has the taint.
func (w *world) shown() (c corev1.NodeCondition, taint bool) {
	n := &corev1.Node{}
	w.server.Get("nodes", "n1", n)
	for _, one := range n.Status.Conditions {
		if one.Type == report.ReadyCondition {
			c = one
		}
	}
	return c, slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == report.NotReadyTaint && t.Effect == corev1.TaintEffectNoSchedule
	})
}

// tainted returns a Node as it was registered, with a taint and a condition of other programs.
func tainted() *corev1.Node {
	n := node()
	n.Spec.Taints = []corev1.Taint{{Key: "other", Effect: corev1.TaintEffectNoExecute}, {Key: report.NotReadyTaint, Effect: corev1.TaintEffectNoSchedule}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}

// othersAreLeft fails if the reporter removed what other programs wrote.
func (w *world) othersAreLeft() {
	w.t.Helper()
	n := &corev1.Node{}
	w.server.Get("nodes", "n1", n)
	if !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "other" }) ||
		!slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady }) {
		w.t.Errorf("taints %v, conditions %v", n.Spec.Taints, n.Status.Conditions)
	}
}

// alive makes the reporter keep the condition and the taint up to date.
func alive(d *report.Config) { d.Alive = report.Alive{Heartbeat: time.Minute, Taint: true} }

// The reporter removes the taint when the daemon is ready, and adds it at an orderly stop. In between, the condition
// has a heartbeat; after a stop it says so. After a crash the heartbeat stands still. What other programs wrote on
// the Node stays.
//
// Faults: A187, A188.
func TestTheNodeShowsThatTheDaemonRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakeapi.New()
		s.Put(tainted())
		d := daemonWith(t, s, instance("a", "boot"), alive)
		watch(3*time.Second, d)
		if c, taint := d.shown(); c.Status != corev1.ConditionFalse || c.Reason != "DaemonStarts" || !taint {
			t.Errorf("while it starts: %+v, taint %v", c, taint)
		}
		d.use("v1")
		watch(3*time.Second, d)
		c, taint := d.shown()
		if c.Status != corev1.ConditionTrue || c.Reason != "DaemonRuns" || taint {
			t.Errorf("ready: %+v, taint %v", c, taint)
		}
		since, beats := c.LastTransitionTime, map[string]bool{}
		for range 10 {
			watch(30*time.Second, d)
			c, _ = d.shown()
			beats[c.LastHeartbeatTime.String()] = true
			if time.Since(c.LastHeartbeatTime.Time) > time.Minute+2*time.Second || !c.LastTransitionTime.Equal(&since) {
				t.Fatalf("%s without a heartbeat, since %s", time.Since(c.LastHeartbeatTime.Time), c.LastTransitionTime)
			}
		}
		if len(beats) < 4 || len(beats) > 6 {
			t.Errorf("%d heartbeats in five minutes", len(beats))
		}
		d.othersAreLeft()
		if err := d.stop(); err != nil {
			t.Fatal(err)
		}
		if c, taint := d.shown(); c.Status != corev1.ConditionFalse || c.Reason != "DaemonStopped" || !taint {
			t.Errorf("stopped: %+v, taint %v", c, taint)
		}
		d.othersAreLeft()
		again := daemonWith(t, s, instance("a", "boot"), alive)
		again.use("v1")
		watch(3*time.Second, again)
		if c, taint := again.shown(); c.Status != corev1.ConditionTrue || taint {
			t.Errorf("started again: %+v, taint %v", c, taint)
		}
	})
}

// If another program drops the condition or adds the taint again, the reporter restores what it wrote. A second
// daemon with the same name writes neither.
//
// Faults: A189.
func TestOthersWriteTheNodeToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakeapi.New()
		s.Put(tainted())
		d := daemonWith(t, s, instance("a", "boot"), alive)
		d.use("v1")
		watch(3*time.Second, d)
		n := d.seeNode()
		n.Status.Conditions, n.Spec.Taints = tainted().Status.Conditions, tainted().Spec.Taints
		s.Put(n)
		watch(3*time.Second, d)
		if c, taint := d.shown(); c.Status != corev1.ConditionTrue || taint {
			t.Errorf("%+v, taint %v", c, taint)
		}
		second := daemonWith(t, s, instance("b", "boot"), alive)
		watch(5*time.Second, d, second)
		_ = second.stop()
		if c, taint := d.shown(); c.Status != corev1.ConditionTrue || taint {
			t.Errorf("beside a second one: %+v, taint %v", c, taint)
		}
	})
}

// A node's own identity may not change its taints: the reporter shows a problem that says what to do, and keeps the
// condition up to date.
//
// Faults: A190.
func TestATaintThatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakeapi.New()
		s.Put(tainted())
		s.Fail(func(r fakeapi.Request) *fakeapi.Answer {
			if r.Verb == "patch" && strings.Contains(r.BodyText, `"taints"`) {
				return &fakeapi.Answer{Code: 403}
			}
			return nil
		})
		d := daemonWith(t, s, instance("a", "boot"), alive)
		d.use("v1")
		watch(3*time.Second, d)
		if c, taint := d.shown(); c.Status != corev1.ConditionTrue || !taint {
			t.Errorf("%+v, taint %v", c, taint)
		}
		p := d.reporter.Findings()
		if !slices.ContainsFunc(p, func(f outage.Finding) bool { return strings.Contains(f.Text, "run without --not-ready-taint") }) {
			t.Errorf("problems %v", p)
		}
	})
}

// A webhook may drop the condition from each write that the server accepts. The reporter shows that as a problem and
// repeats the write with pauses, not at once.
func TestAConditionThatTheServerDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakeapi.New()
		n := node()
		s.Put(n)
		var writes atomic.Int64
		s.Fail(func(r fakeapi.Request) *fakeapi.Answer {
			if r.Verb != "patch" || !strings.Contains(r.BodyText, string(report.ReadyCondition)) {
				return nil
			}
			if writes.Add(1) > 1000 {
				return &fakeapi.Answer{Hang: true} // else virtual time would stand still
			}
			b, err := json.Marshal(n)
			return &fakeapi.Answer{Code: http.StatusOK, Body: string(b), Err: err}
		})
		d := daemonWith(t, s, instance("a", "boot"), func(c *report.Config) { c.Alive = report.Alive{Heartbeat: time.Minute} })
		d.use("v1")
		watch(time.Minute, d)
		if n := writes.Load(); n < 2 || n > 100 {
			t.Errorf("%d writes in a minute", n)
		}
		if p := d.reporter.Findings(); !slices.ContainsFunc(p, func(f outage.Finding) bool { return strings.Contains(f.Text, "admission webhook") }) {
			t.Errorf("problems %v", p)
		}
	})
}
