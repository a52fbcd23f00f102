package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// call is one call to a driver, with copies of everything that it needs.
type call struct {
	driver Driver
	caps   caps
	rec    record
	op     op
	// volume is the volume that an Attach or Detach is for.
	volume state.Volume
}

// answer is the outcome of a call; publish is the publish_context of attachVolume.
type answer struct {
	result
	publish map[string]string
}

// start makes e's call in its own goroutine.
func (c *Controller) start(ctx context.Context, e *entry) {
	d := c.drivers[driverOf(e)]
	k := call{driver: d.Driver, caps: d.caps, rec: e.rec, op: e.doing}
	node := e.attaching
	if k.op.verb == attachVolume || k.op.verb == detachVolume {
		k.volume = node.volume
	} else {
		node = nil
	}
	c.calls.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, c.cfg.Deadline)
		defer cancel()
		if node != nil {
			defer context.AfterFunc(node.ctx, cancel)()
		}
		began := time.Now()
		a := c.perform(ctx, k)
		c.post(func(context.Context) { c.finish(e, k, a, time.Since(began)) })
	})
}

// finish records the outcome of a call. It runs in Run's goroutine.
func (c *Controller) finish(e *entry, k call, a answer, took time.Duration) {
	if k.op.verb == createVolume && a.err == nil {
		id := state.SharedID(k.driver.Name, a.created.handle)
		if owner, ok := c.handles[id]; ok && owner != e.key {
			a.err = wrongAnswer(k.op.verb.String(), fmt.Errorf("the driver answered with the volume_id of claim %s", owner))
			a.anothers = true
		}
	}
	c.logEnd(a.err, "claim", e.key.String(), "volume", e.rec.Name, "driver", string(k.driver.Name),
		"op", k.op.verb.String(), "took", took)
	e.doing, e.since = op{}, time.Now()
	if k.op.verb.limited() {
		c.releaseSlot(k.driver.Name)
	}
	id := e.id() // before complete clears it: a deleted volume has none
	c.setRecord(e, complete(e.rec, k.op, a.result, time.Now()))
	e.unsaved = true
	if k.op.verb == attachVolume || k.op.verb == detachVolume {
		e.answerAttach(a.publish, a.err)
	}
	c.claims.touch(e.key)
	c.touchSnapshotsOf(id)
}

// logEnd logs the outcome of a call.
func (c *Controller) logEnd(err *state.CallError, attrs ...any) {
	if err != nil {
		c.log.Warn("call did not succeed", append(attrs, "err", err)...)
	} else {
		c.log.Info("call succeeded", attrs...)
	}
}

// secret reads the secret that a call needs; ref is zero if it needs none.
func (c *Controller) secret(ctx context.Context, ref state.SecretRef) (map[string]string, error) {
	if ref == (state.SecretRef{}) {
		return nil, nil
	}
	secret, err := c.cfg.Secrets.Secret(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("read secret %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	return secret, nil
}

// secretOr is secret for a call that may remove something. That call is made without a secret that is gone: who removed
// the volume may have removed the secret too, and external-provisioner goes on as well. gone says so, or is nil.
func (c *Controller) secretOr(ctx context.Context, ref state.SecretRef, removes bool) (
	secret map[string]string, gone, err error,
) {
	secret, err = c.secret(ctx, ref)
	if removes && errors.Is(err, ErrNoSecret) {
		c.log.Warn("a call is made without its secret", "err", err)
		return nil, err, nil
	}
	return secret, nil, err
}

// without adds to a call's error, if there is one, that the secret was gone.
func without(gone error, e *state.CallError) *state.CallError {
	if gone == nil || e == nil {
		return e
	}
	more := *e
	more.Err = fmt.Errorf("%w (called without its secret: %w)", e.Err, gone)
	return &more
}

// perform reads the secret, makes the call and checks the answer.
func (c *Controller) perform(ctx context.Context, k call) answer {
	ref := k.rec.secretOf(k.op.verb)
	if k.op.verb == attachVolume || k.op.verb == detachVolume {
		ref = k.volume.Spec.Value().AttachRef
	}
	secret, gone, err := c.secretOr(ctx, ref, k.op.verb == deleteVolume || k.op.verb == detachVolume)
	if err != nil {
		failed := failure(k.op.verb.String(), err)
		failed.Reason = state.NoObject
		return answer{result: result{err: failed, unsent: true}}
	}
	a, err := send(ctx, k, secret)
	if err != nil {
		a.err = without(gone, callError(k.op.verb.String(), err))
		askCapacity(ctx, k, a.err)
	}
	return a
}

// failure returns the error of a call that failed before it reached the driver.
func failure(call string, err error) *state.CallError {
	return &state.CallError{Outcome: state.Failed, Call: call, Err: err}
}

// wrongAnswer returns the error of a call whose OK cannot be used.
func wrongAnswer(call string, err error) *state.CallError {
	return &state.CallError{Outcome: state.Refused, Call: call, Code: codes.OK.String(), Err: err}
}

// send makes the call.
func send(ctx context.Context, k call, secret map[string]string) (answer, error) {
	client := csi.NewControllerClient(k.driver.Conn)
	switch k.op.verb {
	case createVolume:
		return sendCreate(ctx, client, k, secret)
	case deleteVolume:
		_, err := client.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: k.rec.Handle, Secrets: secret})
		return answer{}, ignoreNotFound(err)
	case expandVolume:
		return sendExpand(ctx, client, k, secret)
	case modifyVolume:
		return sendModify(ctx, client, k, secret)
	case attachVolume:
		req, err := attachRequest(k.volume, k.rec.NodeID, k.caps.MultiWriter, secret)
		if err != nil {
			return answer{result: result{unsent: true}}, err
		}
		resp, err := client.ControllerPublishVolume(ctx, req)
		if size := sizeOf(resp.GetPublishContext()); err == nil && size > maxContext {
			return answer{}, wrongAnswer(k.op.verb.String(), tooLarge("publish_context", size))
		}
		return answer{publish: resp.GetPublishContext()}, err
	case detachVolume:
		_, err := client.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{
			VolumeId: k.volume.Spec.Handle, NodeId: k.rec.NodeID, Secrets: secret,
		})
		return answer{}, ignoreNotFound(err)
	default:
		panic(fmt.Sprintf("send: verb %d is no call", k.op.verb))
	}
}

func sendCreate(ctx context.Context, client csi.ControllerClient, k call, secret map[string]string) (answer, error) {
	req, err := createRequest(k.rec.Name, k.op.spec, k.caps.MultiWriter, secret)
	if err != nil {
		return answer{result: result{unsent: true}}, err
	}
	resp, err := client.CreateVolume(ctx, req)
	if err != nil {
		return answer{}, err
	}
	made, err := checkCreated(k.op.spec, k.driver.Topology, resp.GetVolume())
	if err != nil {
		return answer{}, wrongAnswer(k.op.verb.String(), err)
	}
	return answer{result: result{created: made}}, nil
}

func sendExpand(ctx context.Context, client csi.ControllerClient, k call, secret map[string]string) (answer, error) {
	req, err := expandRequest(k.rec, k.op, k.caps.MultiWriter, secret)
	if err != nil {
		return answer{result: result{unsent: true}}, err
	}
	resp, err := client.ControllerExpandVolume(ctx, req)
	if err != nil {
		return answer{}, err
	}
	if resp.GetCapacityBytes() < k.op.bytes {
		return answer{}, fmt.Errorf("the driver answered OK with %d bytes where %d were asked for", resp.GetCapacityBytes(),
			k.op.bytes)
	}
	return answer{result: result{bytes: resp.GetCapacityBytes(), nodeExpand: resp.GetNodeExpansionRequired()}}, nil
}

// ignoreNotFound returns err, or nil if err says that there is nothing to remove.
func ignoreNotFound(err error) error {
	if err != nil && callError("", err).Code == codes.NotFound.String() {
		return nil
	}
	return err
}
