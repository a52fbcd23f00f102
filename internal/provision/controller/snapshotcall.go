package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// snapshotCall is one call to a driver, with copies of everything that it needs.
type snapshotCall struct {
	driver Driver
	rec    snapshotRecord
	op     snapshotOp
}

// startSnapshot makes e's call in its own goroutine.
func (c *Controller) startSnapshot(ctx context.Context, e *snapshotEntry) {
	k := snapshotCall{driver: c.drivers[e.driver()].Driver, rec: e.rec, op: e.doing}
	c.calls.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, c.cfg.Deadline)
		defer cancel()
		began := time.Now()
		res := c.performSnapshot(ctx, k)
		c.post(func(ctx context.Context) { c.finishSnapshot(ctx, e, k, res, time.Since(began)) })
	})
}

// finishSnapshot records the outcome of a call. It runs in Run's goroutine.
func (c *Controller) finishSnapshot(
	ctx context.Context, e *snapshotEntry, k snapshotCall, res snapshotResult, took time.Duration,
) {
	own := func(s *snapshotEntry) bool { return s == e }
	res.shared = len(c.sharersOf(e.rec.handleOf(), own)) > 0
	if k.op.verb == createSnapshot && res.err == nil {
		if owner := c.snapshots.owner(k.driver.Name, res.made.handle, own); owner != nil {
			res.err = wrongAnswer(k.op.verb.String(),
				fmt.Errorf("the driver answered with the snapshot_id of snapshot %s", owner.key))
		}
	}
	c.logEnd(res.err, "snapshot", e.key.String(), "name", e.rec.Name, "driver", string(k.driver.Name),
		"op", k.op.verb.String(), "took", took)
	e.doing, e.since = snapshotOp{}, time.Now()
	c.setSnapshot(e, completeSnapshot(e.rec, k.op, res, time.Now()))
	e.unsaved = true
	c.releaseSnapshotVolume(ctx, k.op)
	c.snapshots.touch(e.key)
	c.touchRestores(e.key)
}

// owner returns another snapshot of the driver with the same handle, or nil. It ignores the
// caller's own snapshots and those that a person named by their handles.
func (s *snapshots) owner(driver state.DriverName, handle string, own func(*snapshotEntry) bool) *snapshotEntry {
	for _, e := range s.entries {
		if e.rec.Spec.Driver == driver && e.rec.Handle == handle && e.rec.Spec.Volume != "" && !own(e) {
			return e
		}
	}
	return nil
}

// performSnapshot reads the secret, makes the call and checks the answer.
func (c *Controller) performSnapshot(ctx context.Context, k snapshotCall) snapshotResult {
	ref := k.rec.Spec.Secret
	if k.op.verb == listSnapshot {
		ref = k.rec.Spec.List
	}
	secret, gone, err := c.secretOr(ctx, ref, k.op.verb == deleteSnapshot)
	if err != nil {
		return snapshotResult{unsent: true, err: failure(k.op.verb.String(), err)}
	}
	if k.op.verb == createSnapshot && k.op.spec.Freeze > 0 && k.op.from != state.Present && !k.rec.Delete {
		return c.createFrozen(ctx, k, secret)
	}
	made, err := sendSnapshot(ctx, k, secret)
	if err != nil {
		return snapshotResult{err: without(gone, callError(k.op.verb.String(), err))}
	}
	return snapshotResult{made: made}
}

// createFrozen makes the call while the volume's file system is frozen. If an earlier answer was
// lost, that call may have made the snapshot when nothing was frozen any more.
func (c *Controller) createFrozen(ctx context.Context, k snapshotCall, secret map[string]string) snapshotResult {
	failed := func(err error) snapshotResult {
		return snapshotResult{unsent: true, err: failure(k.op.verb.String(), err)}
	}
	if c.cfg.Freezer == nil {
		return failed(errors.New("this node cannot freeze file systems"))
	}
	thaw, err := c.cfg.Freezer.Freeze(ctx, state.SharedID(k.op.spec.Driver, k.op.spec.Volume), k.op.spec.Freeze)
	if err != nil {
		return failed(err)
	}
	made, err := sendSnapshot(ctx, k, secret)
	expired := thaw(ctx)
	if err != nil {
		return snapshotResult{err: callError(k.op.verb.String(), err)}
	}
	if made.consistency = Frozen; expired || k.op.from != state.Absent {
		made.consistency = Crash
	}
	return snapshotResult{made: made}
}

// sendSnapshot makes the call.
func sendSnapshot(ctx context.Context, k snapshotCall, secret map[string]string) (madeSnapshot, error) {
	client := csi.NewControllerClient(k.driver.Conn)
	switch k.op.verb {
	case createSnapshot:
		resp, err := client.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{
			SourceVolumeId: k.op.spec.Volume, Name: k.rec.Name, Parameters: k.op.spec.Parameters, Secrets: secret,
		})
		if err != nil {
			return madeSnapshot{}, err
		}
		return checkSnapshot(k, resp.GetSnapshot())
	case listSnapshot:
		resp, err := client.ListSnapshots(ctx, &csi.ListSnapshotsRequest{SnapshotId: k.rec.Handle, Secrets: secret})
		if err != nil {
			return madeSnapshot{}, err
		}
		if len(resp.GetEntries()) == 0 {
			return madeSnapshot{}, failure(k.op.verb.String(), fmt.Errorf("the driver has no snapshot %s", k.rec.Handle))
		}
		return checkSnapshot(k, resp.GetEntries()[0].GetSnapshot())
	case deleteSnapshot:
		_, err := client.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: k.rec.Handle, Secrets: secret})
		return madeSnapshot{}, ignoreNotFound(err) // CSI 1.13 DeleteSnapshot: a missing snapshot counts as deleted
	default:
		panic(fmt.Sprintf("sendSnapshot: verb %d is no call", k.op.verb))
	}
}

// checkSnapshot checks a driver's answer about a snapshot (CSI 1.13 Snapshot).
func checkSnapshot(k snapshotCall, s *csi.Snapshot) (madeSnapshot, error) {
	made := madeSnapshot{
		handle: s.GetSnapshotId(), sizeBytes: max(s.GetSizeBytes(), 0), ready: s.GetReadyToUse(),
	}
	var problem error
	switch want := k.rec.Handle; {
	case made.handle == "":
		problem = errors.New("the driver answered OK without a snapshot_id")
	case len(made.handle) > state.MaxHandle:
		problem = fmt.Errorf("the driver answered with a snapshot_id of %d bytes; at most %d are allowed",
			len(made.handle), state.MaxHandle)
	case want != "" && made.handle != want:
		problem = fmt.Errorf("the driver answered with snapshot %s where %s was asked for", made.handle, want)
	case k.op.verb == createSnapshot && s.GetSourceVolumeId() != k.op.spec.Volume:
		problem = fmt.Errorf("the driver answered with a snapshot of volume %q where one of %q was asked for",
			s.GetSourceVolumeId(), k.op.spec.Volume)
	}
	if problem != nil {
		return madeSnapshot{}, wrongAnswer(k.op.verb.String(), problem)
	}
	if t := s.GetCreationTime(); t.IsValid() {
		made.created = t.AsTime()
	}
	return made, nil
}
