package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// MaxMembers limits the volumes of one group snapshot: all of them are frozen at once.
const MaxMembers = 64

// ErrGrouped means that the snapshot belongs to a group snapshot, which is deleted as a whole.
var ErrGrouped = errors.New("it belongs to a group snapshot")

// Group is a request for snapshots of several volumes at one moment.
type Group struct {
	Key
	// UID determines the group snapshot's name, with the node's storage id; the name never changes.
	UID string
	// Members are the volumes, sorted by claim. They are fixed once the group snapshot is being
	// made.
	Members []Member
	// Handle and Handles are set for an existing group snapshot, which then has no Members: its CSI
	// group_snapshot_id, and the snapshot_ids of its snapshots (a VolumeGroupSnapshotContent with
	// spec.source.groupSnapshotHandles).
	Handle  string
	Handles []string
	Class   SnapshotClass
	// Freeze limits how long the volumes' file systems may be frozen while the snapshots are made;
	// 0 means no freeze.
	Freeze time.Duration
	// Refused says what is missing or which field is not supported, or is "". Such a group snapshot
	// is not made.
	Refused string
	// Waits says what is missing but will come on its own, or is "".
	Waits string

	naming naming // set by SetGroup
}

// Member is one volume of a group snapshot.
type Member struct {
	Claim Key
	// Volume is the CSI volume_id.
	Volume string
	Mode   state.Mode
}

func (g Group) equal(o Group) bool {
	return g.Key == o.Key && g.UID == o.UID && slices.Equal(g.Members, o.Members) && g.Freeze == o.Freeze &&
		g.Handle == o.Handle && slices.Equal(g.Handles, o.Handles) && g.Refused == o.Refused && g.Waits == o.Waits &&
		g.Class.equal(o.Class)
}

// GroupStatus is the status of one group snapshot. It is an immutable copy.
type GroupStatus struct {
	Group Key    `json:"group"`
	UID   string `json:"uid,omitempty"`
	// Phase is Pending, Ready, Released or Deleting.
	Phase  Phase            `json:"phase"`
	Class  string           `json:"class,omitempty"`
	Driver state.DriverName `json:"driver,omitempty"`
	// Claims are the claims of its volumes, empty if a person named it by its handle. Snapshots are
	// the names of its snapshots in the group's namespace, in the same order.
	Claims    []string `json:"claims,omitempty"`
	Snapshots []string `json:"snapshots,omitempty"`
	// Content is the name of its VolumeGroupSnapshotContent, or "" until all snapshots exist.
	Content string `json:"content,omitempty"`
	// Handle is the CSI group_snapshot_id, or "" until the driver returns it; a driver without
	// groups has none.
	Handle  string    `json:"handle,omitempty"`
	Created time.Time `json:"created,omitzero"`
	// Ready means that volumes can be made from all its snapshots.
	Ready bool `json:"ready"`
	// Consistency is "" if a driver made it without a freeze: CSI then guarantees one moment.
	Consistency   Consistency   `json:"consistency,omitempty"`
	ReclaimPolicy ReclaimPolicy `json:"deletionPolicy,omitempty"`
	// Call, Reason, Refused, Until, Since and Retry are as in [ClaimStatus].
	Call   string `json:"call,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Doubted is as in [SnapshotStatus].
	Doubted bool        `json:"doubted,omitempty"`
	Refused bool        `json:"refused,omitempty"`
	Until   time.Time   `json:"until,omitzero"`
	Since   time.Time   `json:"since,omitzero"`
	Retry   state.Retry `json:"retry,omitzero"`
}

// SetGroup records that a source lists g, with its class and its claims' volumes resolved. It
// replaces the previous state of the group snapshot.
func (c *Controller) SetGroup(g Group) {
	g.Class.Parameters, g.Members = maps.Clone(g.Class.Parameters), slices.Clone(g.Members)
	g.Handles = slices.Clone(g.Handles)
	c.post(func(context.Context) {
		e := c.groups.entry(g.Key)
		if e.listed && e.want.equal(g) {
			return
		}
		g.naming = *c.naming.Load()
		e.want, e.listed = g, true
		if policy := g.Class.policy(); g.Handle != "" && g.Handle == e.rec.Handle && e.rec.Spec.Reclaim != policy {
			// The policy of an existing content may change.
			rec := e.rec
			rec.Spec.Reclaim = policy
			c.setGroup(e, rec)
			e.unsaved = true
		}
		e.rec.Content = clearPause(e.rec.Content)
		c.touchGroup(e)
	})
}

// RemoveGroup records that no source lists the group snapshot any longer. It is kept.
func (c *Controller) RemoveGroup(key Key) {
	c.post(func(context.Context) {
		if e := c.groups.entries[key]; e != nil && e.listed {
			e.want, e.listed = Group{}, false
			c.touchGroup(e)
		}
	})
}

// RetryGroup ends the group snapshot's wait after a failure or a "not ready" answer.
func (c *Controller) RetryGroup(key Key) {
	c.post(func(context.Context) {
		if e := c.groups.entries[key]; e != nil {
			c.retryGroup(e)
		}
	})
}

func (c *Controller) retryGroup(e *groupEntry) {
	e.rec.Content = clearPause(e.rec.Content)
	c.touchGroup(e)
}

// DeleteGroup deletes a group snapshot, its snapshots and the data in them. Its errors and its
// guarantees are those of [Controller.Delete]. ErrInUse means that a claim will be made from one
// of the snapshots.
func (c *Controller) DeleteGroup(ctx context.Context, key Key, retained bool) error {
	err := c.do(ctx, func(run context.Context) error { return c.deleteGroup(run, key, retained) })
	if err != nil {
		return fmt.Errorf("delete group snapshot %s: %w", key, err)
	}
	return nil
}

// deleteGroup is DeleteGroup in Run's goroutine.
func (c *Controller) deleteGroup(ctx context.Context, key Key, retained bool) error {
	e := c.groups.entries[key]
	switch {
	case e == nil || e.rec.empty() && e.unreadable == "" && !e.listed:
		return ErrNotFound
	case e.unreadable != "":
		return fmt.Errorf("%w: %s", ErrUnreadable, e.unreadable)
	case e.rec.Delete:
		c.touchGroup(e)
		return askAgain(c, &e.row, e.listed)
	case e.listed:
		return ErrListed
	case e.rec.Spec.Reclaim == Retain && e.rec.Content.Phase != state.Absent && !retained:
		return fmt.Errorf("%w: group snapshot %s", ErrRetained, cmp.Or(e.rec.Handle, e.rec.Name))
	}
	if claim := c.restoringGroup(e); claim != "" {
		return fmt.Errorf("%w: claim %s is to be made from it", ErrInUse, claim)
	}
	rec := e.rec
	rec.Delete, rec.Content.Failed = true, nil
	if err := groupBucket().commit(ctx, c.cfg, map[Key]groupRecord{key: rec}); err != nil {
		return err
	}
	e.old = false
	c.setGroup(e, rec)
	c.touchGroup(e)
	return nil
}

// restoringGroup returns a claim that is being made, or to be made, from a snapshot of the group;
// or "".
func (c *Controller) restoringGroup(e *groupEntry) string {
	for _, m := range e.members {
		if claim := c.restoring(m, true); claim != "" {
			return claim
		}
	}
	return ""
}
