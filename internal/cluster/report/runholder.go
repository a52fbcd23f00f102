package report

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/host/outage"
)

// HeldError means that another running daemon has the node's name.
type HeldError struct {
	Node   string
	Holder Instance
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("node name %s: %v: %v answered. Give this daemon a --node-name of its own, or stop the other one; "+
		"this one takes over the name %s after that", e.Node, ErrNameTaken, e.Holder, answerWait)
}

// Is reports whether target is ErrNameTaken.
func (e *HeldError) Is(target error) bool { return target == ErrNameTaken }

// Claimant describes a daemon that claims its node's name.
type Claimant struct {
	// Instance is shown to other daemons that claim the name. Process need not be set.
	Instance Instance
	// HeldBefore is set if an earlier process of this instance was the last to have the name.
	HeldBefore bool
	// Standing is called with whether this daemon has the name, and why nothing new may be
	// mounted here, "" if it may.
	Standing func(holds bool, why string)
}

// Claim makes Run claim the node's name before it reports anything. It must be called
// before Run. Without it the name is not claimed.
func (r *Reporter) Claim(c Claimant) { r.claim, r.standing = c, unknown }

// NotRead says why a new instance mounts nothing at first.
const NotRead = "waiting for the Node, which says whether another csi-volmgr has this node name"

// runHolder claims the node's name and answers challenges of other daemons, until ctx
// ends. It returns an error if another running daemon has the name.
func (r *Reporter) runHolder(ctx context.Context) error {
	if r.claim.Instance.ID == "" {
		return nil
	}
	c := claim{me: r.claim.Instance}
	c.me.Process = r.writer
	var b outage.Backoff
	var l latest
	for ctx.Err() == nil {
		r.mu.Lock()
		n, seen, changed := r.node, r.seen, r.changed
		r.mu.Unlock()
		n = r.latestNode(ctx, &l, n)
		again := time.Time{}
		if n != nil {
			if c.kubeletWrites(n) {
				c.kubelet = true
			}
			before := c
			m := c.next(n, time.Now(), rand.Text())
			if m.refused {
				return &HeldError{Node: r.config.NodeName, Holder: c.other}
			}
			again = m.again
			if m.annotations != nil {
				if c.standing != holding {
					r.stand(&c, seen) // before the other daemon is asked
				}
				answer, err := r.annotateNode(ctx, n, m.annotations)
				if wait := r.unclaimed(err, &b); wait > 0 {
					c, again = c.unwritten(before), time.Now().Add(wait)
					if !apierrors.IsConflict(err) {
						changed = nil // no change wakes the loop until then: it could not be answered either
					}
				} else if err == nil {
					l.answered(answer)
					c.claimed(answer)
				}
			}
		}
		r.stand(&c, seen)
		if at := l.until(); !at.IsZero() && (again.IsZero() || at.Before(again)) {
			again = at
		}
		timer := time.NewTimer(time.Hour)
		if !again.IsZero() {
			timer.Reset(time.Until(again))
		}
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return nil
}

// unclaimed records why a claim was not written, and returns the pause before the next
// attempt, 0 for none. If the claim is forbidden, the daemon goes on as if it had it.
func (r *Reporter) unclaimed(err error, b *outage.Backoff) (wait time.Duration) {
	const what = "the name of the node"
	switch {
	case err == nil:
		*b = outage.Backoff{}
		r.problem(what, nil, 0)
		return 0
	case apierrors.IsForbidden(err):
		r.problem(what, fmt.Errorf("%w: a second daemon with this --node-name is not noticed", err), 0)
		return 0
	case apierrors.IsConflict(err): // the Node has changed; its watch wakes the loop
		return b.Next(err)
	}
	wait = b.Next(err)
	r.problem(what, err, wait)
	return wait
}

// stand publishes whether this daemon has its node's name, and wakes Run's other goroutines.
func (r *Reporter) stand(c *claim, seen bool) {
	why := c.why(r.config.NodeName)
	if c.standing == unknown && !seen && !r.claim.HeldBefore {
		why = NotRead
	}
	r.mu.Lock()
	changed := r.standing != c.standing || r.rival != c.rival() || r.held != why
	r.standing, r.rival, r.held = c.standing, c.rival(), why
	if changed {
		r.notify()
	}
	r.mu.Unlock()
	if c.standing != unknown {
		r.show("another writer", why)
	}
	r.claim.Standing(c.standing == holding || c.standing == unknown && r.claim.HeldBefore, why)
}

// annotateNode patches the Node's annotations if n is still its newest version.
func (r *Reporter) annotateNode(ctx context.Context, n *corev1.Node, annotations map[string]any) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": n.ResourceVersion,
		"annotations":     annotations,
	}})
	if err != nil {
		return nil, fmt.Errorf("claim node %s: %w", n.Name, err)
	}
	answer, err := r.config.Core.Nodes().Patch(ctx, n.Name, types.MergePatchType, patch)
	if err != nil {
		return nil, fmt.Errorf("claim node %s: %w", n.Name, err)
	}
	return answer, nil
}
