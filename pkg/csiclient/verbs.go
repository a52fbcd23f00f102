package csiclient

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The names of the calls in errors, logs and the code table.
const (
	nodeStage     = "NodeStageVolume"
	nodePublish   = "NodePublishVolume"
	nodeUnpublish = "NodeUnpublishVolume"
	nodeUnstage   = "NodeUnstageVolume"
	nodeExpand    = "NodeExpandVolume"
	nodeStats     = "NodeGetVolumeStats"
)

// Stage makes the directory v.Spec.StagePath and has the driver make the volume
// available there (CSI 1.13, NodeStageVolume). It is idempotent. nil means that the
// driver answered OK; an error says nothing about the state of the host.
func (d *Driver) Stage(ctx context.Context, v state.Volume) error {
	i := d.Info()
	if !i.Stage {
		return lacks(nodeStage, "STAGE_UNSTAGE_VOLUME")
	}
	secrets, err := d.secretsFor(ctx, nodeStage, v.Spec.StageRef)
	if err != nil {
		return err
	}
	req, err := stageRequest(i, v, secrets)
	if err != nil {
		return refused(nodeStage, err)
	}
	if err := d.dirs.makeDir(v.Spec.StagePath); err != nil {
		return failed(nodeStage, fmt.Errorf("staging directory: %w", err))
	}
	_, err = d.node.NodeStageVolume(about(ctx, v), req)
	return CallError(nodeStage, err)
}

// Publish makes the volume available to a pod at its target path (CSI 1.13,
// NodePublishVolume). It makes the target's parent, never the target, and for a block
// volume the pod's link to the device. If v says that the mount is already present,
// Publish renews it, and a failure leaves it in place. Publish returns when the tokens in
// the request must be renewed by another call; zero if it had none.
func (d *Driver) Publish(ctx context.Context, v state.Volume, pod state.PodUID) (time.Time, error) {
	m, err := mountOf(nodePublish, v, pod)
	if err != nil {
		return time.Time{}, err
	}
	secrets, err := d.secretsFor(ctx, nodePublish, v.Spec.PublishRef)
	if err != nil {
		return time.Time{}, err
	}
	tokens, err := d.tokensFor(ctx, v, m.MountSpec)
	if err != nil {
		return time.Time{}, failed(nodePublish, err)
	}
	req, err := publishRequest(d.Info(), v, m.MountSpec, secrets)
	if err != nil {
		return time.Time{}, refused(nodePublish, err)
	}
	tokens.addTo(req, m.Renewal.InSecrets)
	if err := d.publish(ctx, v, m, req); err != nil {
		return time.Time{}, err
	}
	return tokens.renewAt, nil
}

func (d *Driver) publish(ctx context.Context, v state.Volume, m state.Mount, req *csi.NodePublishVolumeRequest) error {
	renewal := m.Phase == state.Present
	makeRoom := d.dirs.makeParent
	if !renewal {
		// Lesson 1. An entry that cannot be inspected or removed, such as a dead mount, is
		// left to the driver (lesson 3).
		makeRoom = func(target string) error { return d.dirs.makeRoom(target, v.Spec.Mode) }
	}
	if err := makeRoom(m.Target); err != nil {
		return failed(nodePublish, fmt.Errorf("parent of target: %w", err))
	}
	if _, err := d.node.NodePublishVolume(about(ctx, v), req); err != nil {
		err = CallError(nodePublish, err)
		if !renewal && definite(err) { // lessons 4, 6, 7
			d.clearTarget(v, m.MountSpec, d.dirs.clear)
		}
		return err
	}
	if d.dirs.isLink(m.Target) {
		return &state.CallError{
			Outcome: state.Failed, Call: nodePublish, Reason: state.NoEffect,
			Err: fmt.Errorf("the driver left a symbolic link at %s, want a mount: a container would get what the link "+
				"leads to on this node; see whether the driver can be told to bind mount", m.Target),
		}
	}
	if m.DevicePath == "" {
		return nil
	}
	if err := d.dirs.link(m.DevicePath, m.Target); err != nil {
		return failed(nodePublish, fmt.Errorf("link to device: %w", err))
	}
	return nil
}

// Unpublish takes the volume from a pod (CSI 1.13, NodeUnpublishVolume). It then
// removes what the driver leaves at the target, and parent directories that are empty.
// It needs only the record.
func (d *Driver) Unpublish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	m, err := mountOf(nodeUnpublish, v, pod)
	if err != nil {
		return err
	}
	req, err := unpublishRequest(v, m.MountSpec)
	if err != nil {
		return refused(nodeUnpublish, err)
	}
	if _, err := d.dirs.rel(m.Target); err != nil { // a record may not lead out of the root (rule 8)
		return refused(nodeUnpublish, err)
	}
	if m.DevicePath != "" { // first, so that the link never dangles
		if err := d.dirs.unlink(m.DevicePath); err != nil {
			return failed(nodeUnpublish, fmt.Errorf("link to device: %w", err))
		}
	}
	before := d.dirs.exists(m.Target)
	_, err = d.node.NodeUnpublishVolume(about(ctx, v), req)
	switch {
	case err == nil, status.Code(err) == codes.NotFound: // lesson 10
	case !before && unspecific(err) && !d.dirs.exists(m.Target): // lessons 5, 11
		d.log.Warn("driver cannot unpublish a missing target; counted as done", "volume", string(v.ID), "err", err)
	default:
		return CallError(nodeUnpublish, err)
	}
	d.clearTarget(v, m.MountSpec, d.dirs.clearUp)
	return nil
}

// Unstage undoes Stage (CSI 1.13, NodeUnstageVolume) and removes the staging
// directory if it is empty. It needs only the record. A driver whose new version no
// longer has STAGE_UNSTAGE_VOLUME must not be called. Then Unstage only removes the
// directory; if something is still mounted there, the manager notices.
func (d *Driver) Unstage(ctx context.Context, v state.Volume) error {
	if d.Info().Stage {
		if err := d.unstage(ctx, v); err != nil {
			return err
		}
	}
	gone, err := d.dirs.clearUp(v.Spec.StagePath, state.Filesystem)
	if !gone {
		d.log.Warn("something is left at the staging path", "volume", string(v.ID), "path", v.Spec.StagePath, "err", err)
	}
	return nil
}

func (d *Driver) unstage(ctx context.Context, v state.Volume) error {
	req, err := unstageRequest(v)
	if err != nil {
		return refused(nodeUnstage, err)
	}
	if _, err := d.dirs.rel(v.Spec.StagePath); err != nil { // see Unpublish
		return refused(nodeUnstage, err)
	}
	if _, err := d.node.NodeUnstageVolume(about(ctx, v), req); err != nil && status.Code(err) != codes.NotFound {
		return CallError(nodeUnstage, err)
	}
	return nil
}

// Expand makes the volume, which pod has mounted, at least bytes large (CSI
// 1.13, NodeExpandVolume). It returns the new size in bytes, or 0 if the driver
// does not say.
func (d *Driver) Expand(ctx context.Context, v state.Volume, pod state.PodUID, bytes int64) (int64, error) {
	i := d.Info()
	if !i.Expand {
		return 0, lacks(nodeExpand, "EXPAND_VOLUME")
	}
	m, err := mountOf(nodeExpand, v, pod)
	if err != nil {
		return 0, err
	}
	secrets, err := d.secretsFor(ctx, nodeExpand, v.Spec.ExpandRef)
	if err != nil {
		return 0, err
	}
	req, err := expandRequest(i, v, m.MountSpec, bytes)
	if err != nil {
		return 0, refused(nodeExpand, err)
	}
	req.Secrets = secrets
	r, err := d.node.NodeExpandVolume(about(ctx, v), req)
	return max(0, r.GetCapacityBytes()), CallError(nodeExpand, err)
}

// clearTarget removes an empty leftover at a target, and logs a warning if it cannot.
func (d *Driver) clearTarget(v state.Volume, m state.MountSpec, clear func(string, state.Mode) (bool, error)) {
	if gone, err := clear(m.Target, v.Spec.Mode); !gone {
		d.log.Warn("something is left at the target", "volume", string(v.ID), "pod", string(m.Pod.UID), "path", m.Target,
			"err", err)
	}
}

// secretsFor reads the secret that a call needs. It reads it again for each call,
// because CSI 1.13 says of UNAUTHENTICATED: renew before retrying.
func (d *Driver) secretsFor(ctx context.Context, call string, ref state.SecretRef) (map[string]string, error) {
	if ref == (state.SecretRef{}) {
		return nil, nil
	}
	if d.secrets == nil {
		return nil, failed(call, fmt.Errorf("secret %s/%s: no source of secrets", ref.Namespace, ref.Name))
	}
	m, err := d.secrets.Secret(ctx, ref)
	if err != nil {
		return nil, &state.CallError{
			Outcome: state.Failed, Call: call, Reason: state.NoObject,
			Err: fmt.Errorf("secret %s/%s: %w", ref.Namespace, ref.Name, err),
		}
	}
	return m, nil
}

func mountOf(call string, v state.Volume, pod state.PodUID) (state.Mount, error) {
	m, ok := v.Mounts[pod]
	if !ok {
		return state.Mount{}, refused(call, fmt.Errorf("pod %s: the record has no mount for it", pod))
	}
	return m, nil
}

// unspecific reports whether the driver itself answered with INTERNAL or UNKNOWN,
// codes that do not say why the call failed.
func unspecific(err error) bool {
	e, ok := errors.AsType[*rpcError](err)
	return ok && e.answered && (e.s.Code() == codes.Internal || e.s.Code() == codes.Unknown)
}

// definite reports whether a failed call certainly had no effect.
func definite(err error) bool {
	e, ok := errors.AsType[*state.CallError](err)
	return ok && e.Outcome != state.Uncertain
}

func failed(call string, err error) error {
	return &state.CallError{Outcome: state.Failed, Call: call, Err: err}
}

func refused(call string, err error) error {
	return &state.CallError{Outcome: state.Refused, Call: call, Err: err}
}

// lacks is the error of a call that the driver has no capability for. CSI 1.13 forbids
// to make it.
func lacks(call, capability string) error {
	return &state.CallError{Outcome: state.Final, Call: call, Err: fmt.Errorf("the driver has no %s", capability)}
}
