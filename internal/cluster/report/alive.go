package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/host/outage"
)

const (
	// ReadyCondition is the Node's condition that says whether csi-volmgr mounts volumes here.
	ReadyCondition corev1.NodeConditionType = "csi-volmgr.dev/VolumesReady"
	// NotReadyTaint keeps new pods away while csi-volmgr mounts no volumes here.
	NotReadyTaint = "csi-volmgr.dev/agent-not-ready"
)

// Reasons of ReadyCondition.
const (
	reasonRuns    = "DaemonRuns"
	reasonStarts  = "DaemonStarts"
	reasonStopped = "DaemonStopped"
	reasonHeld    = "NothingNewIsMounted"
)

const (
	// LeastHeartbeat is the shortest allowed pause between two heartbeats.
	LeastHeartbeat = 10 * time.Second
	// lastWord is how long a daemon that stops tries to write that it stopped.
	lastWord = 3 * time.Second
)

// errNotKept means that a write would have to be repeated at once, for ever.
var errNotKept = errors.New("write condition and taint: the API server accepted them but answered with others; " +
	"look for an admission webhook that changes conditions or taints of Nodes")

// Alive says how the Node shows that the daemon runs.
type Alive struct {
	// Heartbeat is how often ReadyCondition is renewed; 0 means there is no condition.
	Heartbeat time.Duration
	// Taint adds NotReadyTaint to the Node when the daemon stops, and removes it when it is ready.
	Taint bool
}

// readiness holds the contents of ReadyCondition.
type readiness struct {
	status          corev1.ConditionStatus
	reason, message string
}

// readiness returns the daemon's current readiness.
func (r *Reporter) readiness() readiness {
	r.mu.Lock()
	held := r.held
	r.mu.Unlock()
	switch {
	case held != "":
		return readiness{corev1.ConditionFalse, reasonHeld, held}
	case !r.config.Volumes.ReconcilerStatesHasBeenSynced():
		return readiness{corev1.ConditionFalse, reasonStarts, "csi-volmgr has not yet read which volumes are wanted here"}
	}
	return readiness{corev1.ConditionTrue, reasonRuns, "csi-volmgr serves the volumes of this node's pods"}
}

// runAlive keeps the condition and the taint up to date until ctx ends, and then writes
// that the daemon stopped.
func (r *Reporter) runAlive(ctx context.Context) {
	a := r.config.Alive
	if a == (Alive{}) {
		return
	}
	var b outage.Backoff
	var l latest
	for ctx.Err() == nil {
		used := r.config.Volumes.Changed()
		v, changed := r.view(false)
		v.node = r.latestNode(ctx, &l, v.node)
		again := time.Hour
		if v.node != nil {
			is := r.readiness()
			if again = a.due(v.node, is, time.Now()); again <= 0 {
				n, err := r.sayReady(ctx, v.node, is)
				if n != nil {
					l.answered(n)
				}
				if err == nil && a.due(n, is, time.Now()) <= 0 {
					err = errNotKept
				}
				switch {
				case err == nil:
					b = outage.Backoff{}
					r.problem("condition and taint of the Node", nil, 0)
					continue
				case apierrors.IsConflict(err): // the Node has changed; its watch wakes the loop
					again = b.Next(err)
				case ctx.Err() == nil:
					again, used, changed = b.Next(err), nil, nil
					r.problem("condition and taint of the Node", err, again)
				}
			}
		}
		if at := l.until(); !at.IsZero() {
			again = min(again, time.Until(at))
		}
		timer := time.NewTimer(again)
		select {
		case <-used:
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	r.sayStopped(ctx, &l)
}

// sayStopped writes that the daemon stopped, unless it does not have the node's name.
func (r *Reporter) sayStopped(ctx context.Context, l *latest) {
	v, _ := r.view(false)
	if v.node == nil {
		return
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWord)
	defer cancel()
	stopped := readiness{
		corev1.ConditionFalse, reasonStopped,
		"csi-volmgr was stopped; mounted volumes stay mounted, and nothing new is mounted",
	}
	_, err := r.sayReady(last, l.of(v.node, time.Now()), stopped)
	if apierrors.IsConflict(err) {
		var n *corev1.Node
		if n, err = r.currentNode(last); err == nil {
			_, err = r.sayReady(last, n, stopped)
		}
	}
	if err != nil {
		r.logger.Warn("cannot write to the Node that csi-volmgr was stopped", "err", err)
	}
}

// due returns how long to wait before the next write of the Node; 0 means write now.
func (a Alive) due(n *corev1.Node, is readiness, now time.Time) time.Duration {
	if a.Taint && (tainted(n) < 0) != (is.status == corev1.ConditionTrue) {
		return 0
	}
	if a.Heartbeat == 0 {
		return time.Hour
	}
	c := condition(n)
	if c == nil || c.Status != is.status || c.Reason != is.reason || c.Message != is.message {
		return 0
	}
	// min keeps the heartbeats going if the clock was set back.
	return min(max(c.LastHeartbeatTime.Add(a.Heartbeat).Sub(now), 0), a.Heartbeat)
}

// tainted returns the index of the taint in the Node's list, or -1.
func tainted(n *corev1.Node) int {
	return slices.IndexFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == NotReadyTaint })
}

// condition returns the Node's ReadyCondition, or nil.
func condition(n *corev1.Node) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == ReadyCondition {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}

// sayReady writes the condition and the taint, if they are enabled, and returns the new
// Node. A failure to write the taint does not prevent writing the condition.
func (r *Reporter) sayReady(ctx context.Context, n *corev1.Node, is readiness) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var refused error
	if at, ready := tainted(n), is.status == corev1.ConditionTrue; r.config.Alive.Taint && (at < 0) != ready {
		answer, err := r.writeTaint(ctx, n, at)
		if err != nil {
			refused = err
		} else {
			n = answer
		}
	}
	if r.config.Alive.Heartbeat > 0 {
		answer, err := r.writeCondition(ctx, n, is)
		if err != nil {
			return nil, errors.Join(refused, err)
		}
		n = answer
	}
	return n, refused
}

// writeTaint removes the taint at index at, or adds it if at is negative. A merge patch
// replaces the whole list, so the patch fails unless n is the newest version.
func (r *Reporter) writeTaint(ctx context.Context, n *corev1.Node, at int) (*corev1.Node, error) {
	taints := slices.Clone(n.Spec.Taints)
	if at >= 0 {
		taints = slices.Delete(taints, at, at+1)
	} else {
		taints = append(taints, corev1.Taint{Key: NotReadyTaint, Effect: corev1.TaintEffectNoSchedule})
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": n.ResourceVersion}, "spec": map[string]any{"taints": taints},
	})
	if err != nil {
		return nil, fmt.Errorf("write taint %s: %w", NotReadyTaint, err)
	}
	answer, err := r.config.Core.Nodes().Patch(ctx, n.Name, types.MergePatchType, patch)
	if apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("write taint %s: %w: a node's own identity may not change its taints; use the service "+
			"account of deploy/kustomize/rbac.yaml, or run without --not-ready-taint", NotReadyTaint, err)
	}
	if err != nil {
		return nil, fmt.Errorf("write taint %s: %w", NotReadyTaint, err)
	}
	return answer, nil
}

// writeCondition writes ReadyCondition, and leaves other conditions alone.
func (r *Reporter) writeCondition(ctx context.Context, n *corev1.Node, is readiness) (*corev1.Node, error) {
	now := metav1.Now()
	c := corev1.NodeCondition{
		Type: ReadyCondition, Status: is.status, Reason: is.reason, Message: is.message, LastHeartbeatTime: now,
		LastTransitionTime: now,
	}
	if was := condition(n); was != nil && was.Status == is.status {
		c.LastTransitionTime = was.LastTransitionTime
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{c}}})
	if err != nil {
		return nil, fmt.Errorf("write condition %s: %w", ReadyCondition, err)
	}
	answer, err := r.config.Core.Nodes().Patch(ctx, n.Name, types.StrategicMergePatchType, patch, "status")
	if err != nil {
		return nil, fmt.Errorf("write condition %s: %w", ReadyCondition, err)
	}
	return answer, nil
}
