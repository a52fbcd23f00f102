package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Snapshot is a request for a snapshot of a volume, or for an existing snapshot.
type Snapshot struct {
	Key
	// UID determines the snapshot's name, with the node's storage id; the name never changes.
	UID string
	// Claim is the claim of the source volume, and Volume the volume's CSI volume_id. Both are zero
	// if Handle names an existing snapshot.
	Claim  Key
	Volume string
	// Handle is the CSI snapshot_id of an existing snapshot (a VolumeSnapshotContent with
	// spec.source.snapshotHandle).
	Handle string
	// Mode is the volumeMode of the source volume. Only claims of that mode are made from the
	// snapshot; "" means any.
	Mode  state.Mode
	Class SnapshotClass
	// Freeze limits how long the volume's file system may be frozen while the snapshot is made; 0
	// means no freeze.
	Freeze time.Duration
	// Refused says what is missing or which field is not supported, or is "". Such a snapshot is
	// not made.
	Refused string
	// Waits says what is missing but will come on its own, or is "".
	Waits string

	naming naming // set by SetSnapshot
}

func (s Snapshot) equal(o Snapshot) bool {
	return s.Key == o.Key && s.UID == o.UID && s.Claim == o.Claim && s.Volume == o.Volume && s.Handle == o.Handle &&
		s.Mode == o.Mode && s.Freeze == o.Freeze && s.Refused == o.Refused && s.Waits == o.Waits && s.Class.equal(o.Class)
}

// SnapshotClass is a VolumeSnapshotClass: which driver makes a snapshot, and how.
type SnapshotClass struct {
	Name string
	// Driver is the driver's name, or "" if the class was not found.
	Driver     state.DriverName
	Parameters map[string]string
	// Retain keeps the snapshot when its VolumeSnapshot is deleted (deletionPolicy).
	Retain bool
	// Metadata passes the names of the VolumeSnapshot and its content to the driver, as
	// external-snapshotter does with --extra-create-metadata.
	Metadata bool
}

func (c SnapshotClass) equal(o SnapshotClass) bool {
	return c.Name == o.Name && c.Driver == o.Driver && c.Retain == o.Retain && c.Metadata == o.Metadata &&
		maps.Equal(c.Parameters, o.Parameters)
}

// policy returns the policy of the snapshots of the class.
func (c SnapshotClass) policy() ReclaimPolicy {
	if c.Retain {
		return Retain
	}
	return Delete
}

// Ready is the phase of a snapshot that volumes can be made from.
const Ready Phase = "Ready"

// Consistency is the state of the data in a snapshot that was made with a freeze.
type Consistency string

// The values of Consistency.
const (
	// Frozen means that the file system was frozen while the snapshot was made.
	Frozen Consistency = "frozen"
	// Crash is the state after a power failure: the freeze expired before the driver answered, or
	// the answer was lost.
	Crash Consistency = "crash"
	// Apart means that each snapshot of a group has the state after a power failure, possibly of
	// different moments: the freeze expired before the driver had made all, or an answer was lost.
	Apart Consistency = "apart"
)

// SnapshotStatus is the status of one snapshot. It is an immutable copy.
type SnapshotStatus struct {
	Snapshot Key    `json:"snapshot"`
	UID      string `json:"uid,omitempty"`
	// Phase is Pending, Ready, Released or Deleting.
	Phase  Phase            `json:"phase"`
	Class  string           `json:"class,omitempty"`
	Driver state.DriverName `json:"driver,omitempty"`
	// Claim is the claim of the source volume; zero if a person named the snapshot by its handle.
	Claim Key `json:"claim,omitzero"`
	// Volume is the source volume, as far as the record has it; "" if a person named the snapshot by
	// its handle.
	Volume state.VolumeID `json:"volume,omitempty"`
	// Mark is the source volume's; "" if it has none.
	Mark string `json:"mark,omitempty"`
	// Group is the group snapshot that it belongs to, if any.
	Group Key `json:"group,omitzero"`
	// Content is the name of its VolumeSnapshotContent, or "" until one is bound to it.
	Content string `json:"content,omitempty"`
	// Handle is the CSI snapshot_id, or "" until the driver returns it.
	Handle string `json:"handle,omitempty"`
	// SizeBytes is the minimum size of a volume made from it; 0 if unknown.
	SizeBytes int64     `json:"sizeBytes,omitempty"`
	Created   time.Time `json:"created,omitzero"`
	// Ready means that volumes can be made from it (CSI ready_to_use).
	Ready bool `json:"ready"`
	// Consistency is "" for a snapshot without a freeze.
	Consistency   Consistency   `json:"consistency,omitempty"`
	ReclaimPolicy ReclaimPolicy `json:"deletionPolicy,omitempty"`
	// Call, Reason, Refused, Until, Since and Retry are as in [ClaimStatus].
	Call    string `json:"call,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Refused bool   `json:"refused,omitempty"`
	// Doubted: it is not deleted, because the journal that says so may have lost newer records.
	Doubted bool        `json:"doubted,omitempty"`
	Until   time.Time   `json:"until,omitzero"`
	Since   time.Time   `json:"since,omitzero"`
	Retry   state.Retry `json:"retry,omitzero"`
}

// SetSnapshot records that a source lists s, with its class and its claim's volume resolved. It
// replaces the previous state of the snapshot.
func (c *Controller) SetSnapshot(s Snapshot) {
	s.Class.Parameters = maps.Clone(s.Class.Parameters)
	c.post(func(context.Context) {
		e := c.snapshots.entry(s.Key)
		if e.listed && e.want.equal(s) {
			return
		}
		c.touchSharers(e.want.wantedHandle())
		s.naming = *c.naming.Load()
		e.want, e.listed = s, true
		c.touchSharers(s.wantedHandle())
		named := e.group == nil && s.Handle != "" && s.Handle == e.rec.Handle
		if policy := s.Class.policy(); named && e.rec.Spec.Reclaim != policy {
			// The policy of an existing content may change.
			e.rec.Spec.Reclaim, e.unsaved = policy, true
		}
		e.rec.Content = clearPause(e.rec.Content)
		c.snapshots.touch(s.Key)
		c.touchRestores(s.Key)
	})
}

// RemoveSnapshot records that no source lists the snapshot any longer. It is kept.
func (c *Controller) RemoveSnapshot(key Key) {
	c.post(func(context.Context) {
		if e := c.snapshots.entries[key]; e != nil && e.listed {
			c.touchSharers(e.want.wantedHandle())
			e.want, e.listed = Snapshot{}, false
			c.snapshots.touch(key)
			c.touchRestores(key)
		}
	})
}

// RetrySnapshot ends the wait of a snapshot, or of the group snapshot that it belongs to, after a
// failure or a "not ready" answer.
func (c *Controller) RetrySnapshot(key Key) {
	c.post(func(context.Context) {
		switch e := c.snapshots.entries[key]; {
		case e == nil:
		case e.group != nil:
			c.retryGroup(e.group)
		default:
			e.rec.Content = clearPause(e.rec.Content)
			c.snapshots.touch(key)
		}
	})
}

// DeleteSnapshot deletes a snapshot and the data in it. Its errors and its guarantees are those of
// [Controller.Delete]. ErrInUse means that a claim will be made from the snapshot.
func (c *Controller) DeleteSnapshot(ctx context.Context, key Key, retained bool) error {
	err := c.do(ctx, func(run context.Context) error { return c.deleteSnapshot(run, key, retained) })
	if err != nil {
		return fmt.Errorf("delete snapshot %s: %w", key, err)
	}
	return nil
}

// deleteSnapshot is DeleteSnapshot in Run's goroutine.
func (c *Controller) deleteSnapshot(ctx context.Context, key Key, retained bool) error {
	e := c.snapshots.entries[key]
	switch {
	case e == nil || e.rec.empty() && e.unreadable == "" && !e.listed || e.hidden():
		return ErrNotFound
	case e.unreadable != "":
		return fmt.Errorf("%w: %s", ErrUnreadable, e.unreadable)
	case e.group != nil:
		return fmt.Errorf("%w, %s, which is deleted as a whole", ErrGrouped, e.group.key)
	case e.rec.Delete:
		c.snapshots.touch(key)
		return askAgain(c, &e.row, e.listed)
	case e.listed:
		return ErrListed
	case e.rec.Spec.Reclaim == Retain && e.rec.Content.Phase != state.Absent && !retained:
		return fmt.Errorf("%w: snapshot %s", ErrRetained, cmp.Or(e.rec.Handle, e.rec.Name))
	}
	if claim := c.restoring(e, true); claim != "" {
		return fmt.Errorf("%w: claim %s is to be made from it", ErrInUse, claim)
	}
	rec := e.rec
	rec.Delete, rec.Content.Failed = true, nil
	if err := snapshotBucket().commit(ctx, c.cfg, map[Key]snapshotRecord{key: rec}); err != nil {
		return err
	}
	e.old = false
	c.setSnapshot(e, rec)
	c.snapshots.touch(key)
	return nil
}

// clearPause makes the next call of f due now.
func clearPause(f state.Fact) state.Fact {
	again := f.Retry()
	again.NotBefore, again.Final = time.Time{}, false
	f.Failed = again.Kept()
	return f
}
