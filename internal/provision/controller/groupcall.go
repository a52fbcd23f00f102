package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// groupCall is one operation at a driver, with copies of everything that it needs.
type groupCall struct {
	driver Driver
	rec    groupRecord
	op     groupOp
}

// startGroup makes e's calls in its own goroutine.
func (c *Controller) startGroup(ctx context.Context, e *groupEntry) {
	k := groupCall{driver: c.drivers[e.driver()].Driver, rec: e.rec, op: e.doing}
	k.rec.Members = slices.Clone(k.rec.Members)
	c.calls.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, c.cfg.Deadline)
		defer cancel()
		began := time.Now()
		res := c.performGroup(ctx, k)
		c.post(func(ctx context.Context) { c.finishGroup(ctx, e, k, res, time.Since(began)) })
	})
}

// finishGroup records the outcome of an operation. It runs in Run's goroutine.
func (c *Controller) finishGroup(ctx context.Context, e *groupEntry, k groupCall, res groupResult, took time.Duration) {
	c.checkOwners(e, k, &res)
	c.logEnd(res.err, "group", e.key.String(), "name", e.rec.Name, "driver", string(k.driver.Name),
		"op", k.op.call(), "took", took)
	e.doing, e.since, e.unsavedVolumes = groupOp{}, time.Now(), e.volumes()
	c.setGroup(e, completeGroup(e.rec, k.op, res, time.Now()))
	e.unsaved = true
	c.releaseGroupVolumes(ctx, k.op)
	c.touchGroup(e)
}

// checkOwners rejects an answer that contains the handle of another snapshot.
func (c *Controller) checkOwners(e *groupEntry, k groupCall, res *groupResult) {
	if k.op.verb == deleteGroup {
		return
	}
	seen := map[string]bool{}
	for _, m := range k.rec.Members {
		seen[m.Handle] = m.Phase == state.Present
	}
	wrong := false
	for i, m := range res.members {
		if m.unasked || m.err != nil {
			continue
		}
		owner := c.snapshots.owner(k.driver.Name, m.made.handle, func(s *snapshotEntry) bool { return s.group == e })
		var err error
		switch {
		case owner != nil:
			err = fmt.Errorf("the driver answered with the snapshot_id of snapshot %s", owner.key)
		case seen[m.made.handle] && k.rec.Members[i].Handle != m.made.handle:
			err = fmt.Errorf("the driver answered with snapshot %s twice", m.made.handle)
		default:
			seen[m.made.handle] = true
			continue
		}
		wrong = true
		res.members[i].err = wrongAnswer(k.op.call(), err)
		res.err = res.members[i].err
	}
	if wrong && !k.op.spec.Each {
		res.members = nil
	}
}

// performGroup reads the secret, makes the calls and checks the answers.
func (c *Controller) performGroup(ctx context.Context, k groupCall) groupResult {
	unsent := func(err error) groupResult { return groupResult{unsent: true, err: failure(k.op.call(), err)} }
	ref := k.op.spec.Secret
	if k.op.verb == getGroup && !k.op.spec.Each {
		ref = k.op.spec.Get
	}
	secret, gone, err := c.secretOr(ctx, ref, k.op.verb == deleteGroup)
	if err != nil {
		return unsent(err)
	}
	if k.op.verb != createGroup || k.op.spec.Freeze == 0 || k.rec.Delete {
		res := sendGroup(ctx, k, secret)
		res.err = without(gone, res.err)
		return res
	}
	thaw, err := c.freezeAll(ctx, k)
	if err != nil {
		return unsent(err)
	}
	res := sendGroup(ctx, k, secret)
	res.expired = thaw(ctx)
	return res
}

// freezeAll freezes the file systems of all volumes at once. thaw ends the freezes and reports
// whether one had expired before.
func (c *Controller) freezeAll(ctx context.Context, k groupCall,
) (thaw func(context.Context) (expired bool), err error) {
	if c.cfg.Freezer == nil {
		return nil, errors.New("this node cannot freeze file systems")
	}
	thaws := make([]func(context.Context) bool, len(k.rec.Members))
	errs := make([]error, len(k.rec.Members))
	var all sync.WaitGroup
	for i, m := range k.rec.Members {
		all.Go(func() {
			id := state.SharedID(k.op.spec.Driver, m.Volume)
			thaws[i], errs[i] = c.cfg.Freezer.Freeze(ctx, id, k.op.spec.Freeze)
		})
	}
	all.Wait()
	thaw = func(ctx context.Context) bool {
		expired := make([]bool, len(thaws))
		var all sync.WaitGroup
		for i, thaw := range thaws {
			if thaw != nil {
				all.Go(func() { expired[i] = thaw(ctx) })
			}
		}
		all.Wait()
		return slices.Contains(expired, true)
	}
	if err := errors.Join(errs...); err != nil {
		thaw(ctx)
		return nil, err
	}
	return thaw, nil
}

// sendGroup makes the calls.
func sendGroup(ctx context.Context, k groupCall, secret map[string]string) groupResult {
	if k.op.spec.Each {
		return sendEach(ctx, k, secret)
	}
	var ids, handles []string
	for _, m := range k.rec.Members {
		ids, handles = append(ids, m.Volume), append(handles, m.Handle)
	}
	client := csi.NewGroupControllerClient(k.driver.Conn)
	var group *csi.VolumeGroupSnapshot
	var err error
	switch k.op.verb {
	case createGroup:
		var resp *csi.CreateVolumeGroupSnapshotResponse
		resp, err = client.CreateVolumeGroupSnapshot(ctx, &csi.CreateVolumeGroupSnapshotRequest{
			Name: k.rec.Name, SourceVolumeIds: ids, Secrets: secret, Parameters: k.op.spec.Parameters,
		})
		group = resp.GetGroupSnapshot()
	case getGroup:
		var resp *csi.GetVolumeGroupSnapshotResponse
		resp, err = client.GetVolumeGroupSnapshot(ctx, &csi.GetVolumeGroupSnapshotRequest{
			GroupSnapshotId: k.rec.Handle, SnapshotIds: handles, Secrets: secret,
		})
		group = resp.GetGroupSnapshot()
	case deleteGroup:
		_, err = client.DeleteVolumeGroupSnapshot(ctx, &csi.DeleteVolumeGroupSnapshotRequest{
			GroupSnapshotId: k.rec.Handle, SnapshotIds: handles, Secrets: secret,
		})
		if err = ignoreNotFound(err); err == nil {
			return groupResult{}
		}
	case noGroupVerb, dropGroup:
		panic(fmt.Sprintf("sendGroup: verb %d is no call", k.op.verb))
	}
	if err != nil {
		return groupResult{err: callError(k.op.call(), err)}
	}
	return checkGroup(k, group)
}

// sendEach makes one call for each snapshot, all at once. The snapshots show one moment only while
// the file systems are frozen, and the freeze lasts as long as the slowest call.
func sendEach(ctx context.Context, k groupCall, secret map[string]string) groupResult {
	res := groupResult{members: make([]memberResult, len(k.rec.Members))}
	var all sync.WaitGroup
	for i, m := range k.rec.Members {
		one := snapshotCall{driver: k.driver, rec: k.rec.snapshot(m), op: snapshotOp{verb: createSnapshot}}
		one.op.spec = one.rec.Spec
		one.op.spec.Parameters = k.op.spec.Parameters
		skip := m.Phase != state.Entering
		switch k.op.verb {
		case getGroup:
			skip = m.Ready
		case deleteGroup:
			one.op.verb, skip = deleteSnapshot, m.Phase != state.Leaving
		case createGroup, noGroupVerb, dropGroup:
		}
		if skip {
			res.members[i].unasked = true
			continue
		}
		all.Go(func() {
			made, err := sendSnapshot(ctx, one, secret)
			if res.members[i].made = made; err != nil {
				res.members[i].err = callError(k.op.call(), err)
			}
		})
	}
	all.Wait()
	for i, m := range res.members {
		if m.err != nil && res.err == nil {
			e := *m.err
			e.Err = fmt.Errorf("claim %s: %w", k.rec.Members[i].Claim, e.Err)
			res.err = &e
		}
	}
	return res
}

// checkGroup checks a driver's answer about a group snapshot (CSI 1.13 VolumeGroupSnapshot).
func checkGroup(k groupCall, g *csi.VolumeGroupSnapshot) groupResult {
	wrong := func(format string, args ...any) groupResult {
		return groupResult{err: wrongAnswer(k.op.call(), fmt.Errorf("the driver answered "+format, args...))}
	}
	id := g.GetGroupSnapshotId()
	switch want := k.rec.Handle; {
	case id == "":
		return wrong("OK without a group_snapshot_id")
	case len(id) > state.MaxHandle:
		return wrong("with a group_snapshot_id of %d bytes; at most %d are allowed", len(id), state.MaxHandle)
	case want != "" && id != want:
		return wrong("with group snapshot %s where %s was asked for", id, want)
	}
	res := groupResult{handle: id, members: make([]memberResult, len(k.rec.Members))}
	found, handles := 0, map[string]bool{}
	for _, s := range g.GetSnapshots() {
		i := slices.IndexFunc(k.rec.Members, func(m groupMember) bool {
			if m.Volume == "" {
				return m.Handle == s.GetSnapshotId()
			}
			return m.Volume == s.GetSourceVolumeId()
		})
		if i < 0 {
			return wrong("with snapshot %q of volume %q, which is none of the group's", s.GetSnapshotId(), s.GetSourceVolumeId())
		}
		one := snapshotCall{rec: k.rec.snapshot(k.rec.Members[i]), op: snapshotOp{verb: createSnapshot}}
		if k.rec.Members[i].Volume == "" {
			one.op.verb = listSnapshot
		}
		one.op.spec = one.rec.Spec
		made, err := checkSnapshot(one, s)
		switch {
		case err != nil:
			e := callError(k.op.call(), err)
			e.Call = k.op.call()
			return groupResult{err: e}
		case handles[made.handle]:
			return wrong("with snapshot %s twice", made.handle)
		case res.members[i].made.handle != "":
			return wrong("with two snapshots of volume %s", s.GetSourceVolumeId())
		}
		made.ready, made.volume = made.ready && g.GetReadyToUse(), s.GetSourceVolumeId()
		res.members[i].made, handles[made.handle] = made, true
		found++
	}
	if found != len(k.rec.Members) {
		return wrong("with %d snapshots where %d were asked for", found, len(k.rec.Members))
	}
	if t := g.GetCreationTime(); t.IsValid() {
		res.created = t.AsTime()
	}
	res.created = cmp.Or(res.created, res.members[0].made.created)
	return res
}
