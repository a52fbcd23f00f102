package controller

import (
	"context"
	"errors"
	"fmt"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// attachCall is a caller that waits until a volume is attached or detached.
type attachCall struct {
	ctx    context.Context // the waiting caller's; the call ends with it
	verb   verb
	volume state.Volume
	reply  chan attachAnswer // capacity 1: Run does not wait for a caller that gave up
}

type attachAnswer struct {
	publish map[string]string
	err     error
}

// Attach makes the volume reachable from this node (CSI 1.13 ControllerPublishVolume) and returns
// the publish_context. It is idempotent and waits for other calls in flight for the volume. Its
// errors are of type [state.CallError].
func (c *Controller) Attach(ctx context.Context, v state.Volume) (map[string]string, error) {
	return c.attachOrDetach(ctx, attachVolume, v)
}

// Detach undoes Attach (CSI 1.13 ControllerUnpublishVolume). The caller has unpublished and
// unstaged the volume everywhere on the node (CSI 1.13, N-104 "MUST be called after all
// NodeUnstageVolume"). Detach succeeds if the driver does not know the volume.
func (c *Controller) Detach(ctx context.Context, v state.Volume) error {
	_, err := c.attachOrDetach(ctx, detachVolume, v)
	return err
}

func (c *Controller) attachOrDetach(ctx context.Context, verb verb, v state.Volume) (map[string]string, error) {
	n := &attachCall{ctx: ctx, verb: verb, volume: v, reply: make(chan attachAnswer, 1)}
	c.post(func(run context.Context) { c.takeAttach(run, n) })
	stop := context.AfterFunc(ctx, func() {
		c.post(func(context.Context) { c.dropAttach(n) })
	})
	defer stop()
	select {
	case a := <-n.reply:
		return a.publish, a.err
	case <-ctx.Done():
		return nil, &state.CallError{Outcome: state.Uncertain, Call: verb.String(), Err: context.Cause(ctx)}
	case <-c.done:
		return nil, failure(verb.String(), errStopped)
	}
}

// takeAttach plans the call of n, or makes it if no claim has the volume. It runs in Run's
// goroutine.
func (c *Controller) takeAttach(ctx context.Context, n *attachCall) {
	key, ok := c.handles[state.SharedID(n.volume.Spec.Driver, n.volume.Spec.Handle)]
	e := c.claims.entries[key]
	switch {
	case !ok:
		c.attachForeign(ctx, n)
	case e.attaching != nil:
		n.answer(nil, failure(n.verb.String(), fmt.Errorf("volume %s: another caller waits to attach or detach it",
			e.rec.Name)))
	default:
		e.attaching = n
		c.claims.touch(key)
	}
}

// dropAttach removes a caller that gave up before its call began.
func (c *Controller) dropAttach(n *attachCall) {
	e := c.claims.entries[c.handles[state.SharedID(n.volume.Spec.Driver, n.volume.Spec.Handle)]]
	if e == nil || e.attaching != n || e.doing.verb == n.verb {
		return
	}
	e.answerAttach(nil, failure(n.verb.String(), context.Cause(n.ctx)))
}

// attachForeign makes the call for a volume without a claim here, whose record the caller keeps.
// The call waits while a snapshot of the volume is being made.
func (c *Controller) attachForeign(ctx context.Context, n *attachCall) {
	id := state.SharedID(n.volume.Spec.Driver, n.volume.Spec.Handle)
	if _, ok := c.snapshots.inFlight[id]; ok {
		c.snapshots.waiting[id] = append(c.snapshots.waiting[id], n)
		return
	}
	d := c.drivers[n.volume.Spec.Driver]
	if d == nil {
		n.answer(nil, failure(n.verb.String(), errors.New(c.absence(n.volume.Spec.Driver).Problem)))
		return
	}
	if why := d.nodeUnknown(); why != "" {
		n.answer(nil, failure(n.verb.String(), errors.New(why)))
		return
	}
	if d.asking() {
		c.ensureAsked(d)
		d.attaching = append(d.attaching, n)
		return
	}
	k := call{driver: d.Driver, caps: d.caps, op: op{verb: n.verb}, volume: n.volume}
	nodeID, err := c.foreignNodeID(ctx, n, d)
	if err != nil {
		n.answer(nil, failure(n.verb.String(), err))
		return
	}
	k.rec.NodeID = nodeID
	c.snapshots.foreign[id]++
	c.calls.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, c.cfg.Deadline)
		defer cancel()
		defer context.AfterFunc(n.ctx, cancel)()
		a := c.perform(ctx, k)
		c.post(func(run context.Context) {
			if n.verb == detachVolume && a.err == nil {
				_ = c.setForeignNodeID(run, n.volume, "") // logged; a later attach writes its own
			}
			c.foreignEnded(id)
		})
		n.answer(a.publish, a.err)
	})
}

// refuseAttach replies to the waiting caller if its call will not be made.
func (e *entry) refuseAttach(f facts) {
	if e.attaching == nil {
		return
	}
	switch refused, why := attachRefused(e.rec, e.attaching.verb, f); {
	case !refused:
	case why == "":
		e.answerAttach(nil, nil)
	default:
		e.answerAttach(nil, failure(e.attaching.verb.String(), errors.New(why)))
	}
}

// answerAttach replies to the waiting caller.
func (e *entry) answerAttach(publish map[string]string, err *state.CallError) {
	n := e.attaching
	e.attaching = nil
	n.answer(publish, err)
}

func (n *attachCall) answer(publish map[string]string, err *state.CallError) {
	a := attachAnswer{publish: publish}
	if err != nil {
		a = attachAnswer{err: err}
	}
	n.reply <- a
}
