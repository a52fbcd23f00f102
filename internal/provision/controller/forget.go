package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// ErrNotForgotten means that the record has another end than to be forgotten.
var ErrNotForgotten = errors.New("not forgotten")

// ForgetClaim drops the record of a claim that no source lists, without a call, and returns what may be left at
// the storage. gone says that the driver will not come back: without it the claim's deletion must have begun and the
// driver must be there. Its error wraps ErrNotForgotten, ErrNotFound, ErrListed, ErrInUse or ErrUnreadable.
func (c *Controller) ForgetClaim(ctx context.Context, key Key, gone bool) (left string, err error) {
	err = c.do(ctx, func(run context.Context) error {
		left, err = c.forgetClaim(run, key, gone)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("forget claim %s: %w", key, err)
	}
	return left, nil
}

// forgetClaim is ForgetClaim in Run's goroutine.
func (c *Controller) forgetClaim(ctx context.Context, key Key, gone bool) (left string, err error) {
	e := c.claims.entries[key]
	switch {
	case e == nil || e.rec.empty() && e.unreadable == "" && !e.want.Listed:
		return "", ErrNotFound
	case e.unreadable != "":
		return "", fmt.Errorf("%w: %s", ErrUnreadable, e.unreadable)
	case e.want.Listed:
		return "", ErrListed
	case e.doing.verb != noVerb:
		return "", inFlight(e.doing.verb.String())
	case e.attaching != nil:
		return "", inFlight(e.attaching.verb.String())
	}
	if err := mayForget(c.facts(e).Driver, e.rec.Delete, e.rec.Volume, gone); err != nil {
		return "", err
	}
	if err := c.checkUnwanted(e); err != nil {
		return "", err
	}
	left = leftOf(e.rec)
	if err := claimBucket().commit(ctx, c.cfg, map[Key]record{key: {}}); err != nil {
		return "", err
	}
	id, from := e.id(), e.rec.Spec.Source
	c.setRecord(e, record{})
	e.old = false
	c.claims.touch(key)
	c.touchSnapshotsOf(id)
	c.touchSource(from)
	return left, nil
}

// ForgetSnapshot does for a snapshot what [Controller.ForgetClaim] does for a claim. ErrGrouped means that the
// snapshot belongs to a group.
func (c *Controller) ForgetSnapshot(ctx context.Context, key Key, gone bool) (left string, err error) {
	err = c.do(ctx, func(run context.Context) error {
		left, err = c.forgetSnapshot(run, key, gone)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("forget snapshot %s: %w", key, err)
	}
	return left, nil
}

// forgetSnapshot is ForgetSnapshot in Run's goroutine.
func (c *Controller) forgetSnapshot(ctx context.Context, key Key, gone bool) (left string, err error) {
	e := c.snapshots.entries[key]
	switch {
	case e == nil || e.rec.empty() && e.unreadable == "" && !e.listed:
		return "", ErrNotFound
	case e.unreadable != "":
		return "", fmt.Errorf("%w: %s", ErrUnreadable, e.unreadable)
	case e.group != nil:
		return "", fmt.Errorf("%w, %s, whose snapshots have one record", ErrGrouped, e.group.key)
	case e.listed:
		return "", ErrListed
	case e.doing.verb != noSnapshotVerb:
		return "", inFlight(e.doing.verb.String())
	}
	if err := mayForget(c.snapshotDriver(e.driver()), e.rec.Delete, e.rec.Content, gone); err != nil {
		return "", err
	}
	if claim := c.restoring(e, true); claim != "" {
		return "", fmt.Errorf("%w: claim %s is to be made from it", ErrInUse, claim)
	}
	left = fmt.Sprintf("snapshot %s (handle %q) of driver %s", e.rec.Name, e.rec.Handle, e.rec.Spec.Driver)
	if err := snapshotBucket().commit(ctx, c.cfg, map[Key]snapshotRecord{key: {}}); err != nil {
		return "", err
	}
	e.old = false
	c.setSnapshot(e, snapshotRecord{})
	c.snapshots.touch(key)
	c.touchRestores(key)
	return left, nil
}

// ForgetAttachment drops that a volume is attached to this node, without a call, after the manager has forgotten the
// volume. The deletion of a claim's volume goes on then.
func (c *Controller) ForgetAttachment(ctx context.Context, v state.Volume) error {
	err := c.do(ctx, func(run context.Context) error {
		e := c.claims.entries[c.handles[state.SharedID(v.Spec.Driver, v.Spec.Handle)]]
		switch {
		case e == nil:
			return c.setForeignNodeID(run, v, "")
		case e.attaching != nil:
			return inFlight(e.attaching.verb.String())
		}
		rec := e.rec
		rec.Attach, rec.NodeID = state.Absent, ""
		if err := claimBucket().commit(run, c.cfg, map[Key]record{e.key: rec}); err != nil {
			return err
		}
		c.setRecord(e, rec)
		c.claims.touch(e.key)
		return nil
	})
	if err != nil {
		return fmt.Errorf("forget that volume %s is attached: %w", v.Spec.Name, err)
	}
	return nil
}

func inFlight(verb string) error {
	return fmt.Errorf("%w: %s is in flight: wait for its end", ErrNotForgotten, verb)
}

// mayForget returns an error if a deletion can end the record, or may when its driver is back.
func mayForget(d driverFacts, deleted bool, f state.Fact, gone bool) error {
	switch {
	case d.away() && !gone:
		return fmt.Errorf("%w: %s, and may come back: if it is gone for good, say so with --driver-gone", ErrNotForgotten,
			d.Problem)
	case !d.away() && !deleted:
		return fmt.Errorf("%w: its driver is there: delete it, with --data if it is kept", ErrNotForgotten)
	case !d.away() && !gone && (f.Retry().Attempts == 0 || f.Retry().Unanswered):
		return fmt.Errorf("%w: its driver has not answered the deletion yet: wait, or say with --driver-gone that it "+
			"will not", ErrNotForgotten)
	}
	return nil
}

// leftOf says what may be left of a volume at its storage.
func leftOf(r record) string {
	text := fmt.Sprintf("volume %s (handle %q) of driver %s", r.Name, r.Handle, r.Spec.Driver)
	for _, key := range slices.Sorted(maps.Keys(r.Context)) {
		text += fmt.Sprintf(" %s=%q", key, r.Context[key])
	}
	if r.Attach != state.Absent {
		text += ", attached to node " + r.NodeID
	}
	return strings.TrimSpace(text)
}
