package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Snapshot is what a person wants: that a snapshot of a volume is there, or is known.
type Snapshot struct {
	Key
	// UID gives the snapshot its name for ever ("snapshot-" and UID).
	UID string
	// Claim is the claim whose volume it is to be of, and Volume the CSI volume_id of that
	// volume; none where Handle names a snapshot that is there.
	Claim  Key
	Volume string
	// Handle is the CSI snapshot_id of a snapshot that is there (a VolumeSnapshotContent
	// with spec.source.snapshotHandle).
	Handle string
	// Mode is the volumeMode of its volume: only claims of that mode are made of it; "" for any.
	Mode  state.Mode
	Class SnapshotClass
	// Freeze is for how long at the most the volume's file system may be held still while the
	// snapshot is made; 0 not at all.
	Freeze time.Duration
	// Refused says what is missing, or which field is not followed; "" for none. Such a
	// snapshot is not made.
	Refused string
	// Waits says what is not there yet, and comes by itself; "" for none.
	Waits string
}

func (s Snapshot) equal(o Snapshot) bool {
	return s.Key == o.Key && s.UID == o.UID && s.Claim == o.Claim && s.Volume == o.Volume && s.Handle == o.Handle &&
		s.Mode == o.Mode && s.Freeze == o.Freeze && s.Refused == o.Refused && s.Waits == o.Waits && s.Class.equal(o.Class)
}

// SnapshotClass is a VolumeSnapshotClass: who makes a snapshot, and how.
type SnapshotClass struct {
	Name string
	// Driver is "" where the class is not there.
	Driver     state.DriverName
	Parameters map[string]string
	// Retain: the snapshot stays when its VolumeSnapshot is deleted (deletionPolicy).
	Retain bool
	// Metadata: the driver is told the names of the VolumeSnapshot and of its content, as
	// external-snapshotter does with --extra-create-metadata.
	Metadata bool
}

func (c SnapshotClass) equal(o SnapshotClass) bool {
	return c.Name == o.Name && c.Driver == o.Driver && c.Retain == o.Retain && c.Metadata == o.Metadata &&
		maps.Equal(c.Parameters, o.Parameters)
}

// policy is what becomes of a snapshot of the class.
func (c SnapshotClass) policy() ReclaimPolicy {
	if c.Retain {
		return Retain
	}
	return Delete
}

// Ready is the phase of a snapshot that volumes can be made of.
const Ready Phase = "Ready"

// Consistency is what a snapshot that asked for a freeze holds.
type Consistency string

// What a snapshot holds.
const (
	// Frozen: the file system was held still while it was made.
	Frozen Consistency = "frozen"
	// Crash: what a power cut leaves. The freeze ended before the driver had answered, or its answer was lost.
	Crash Consistency = "crash"
	// Apart: each snapshot of a group holds what a power cut leaves, and they are not known to be of one
	// moment: the freeze ended before the driver had made all, or an answer was lost.
	Apart Consistency = "apart"
)

// SnapshotStatus is one snapshot as it stands. It is an immutable copy.
type SnapshotStatus struct {
	Snapshot Key    `json:"snapshot"`
	UID      string `json:"uid,omitempty"`
	// Phase is Pending, Ready, Released or Deleting.
	Phase  Phase            `json:"phase"`
	Class  string           `json:"class,omitempty"`
	Driver state.DriverName `json:"driver,omitempty"`
	// Claim is the claim that it is of; none where a person named the snapshot.
	Claim Key `json:"claim,omitzero"`
	// Group is the group snapshot that it is one of; none for others.
	Group Key `json:"group,omitzero"`
	// Content is the name of its VolumeSnapshotContent, "" until one is bound to it.
	Content string `json:"content,omitempty"`
	// Handle is the CSI snapshot_id, "" until the driver told it.
	Handle string `json:"handle,omitempty"`
	// SizeBytes is the least size of a volume that is made of it; 0 where it is not known.
	SizeBytes int64     `json:"sizeBytes,omitempty"`
	Created   time.Time `json:"created,omitzero"`
	// Ready: volumes can be made of it (CSI ready_to_use).
	Ready bool `json:"ready"`
	// Consistency is "" for a snapshot that asked for no freeze.
	Consistency   Consistency   `json:"consistency,omitempty"`
	ReclaimPolicy ReclaimPolicy `json:"deletionPolicy,omitempty"`
	// Call, Reason, Refused, Until, Since and Retry are as in [ClaimStatus].
	Call    string      `json:"call,omitempty"`
	Reason  string      `json:"reason,omitempty"`
	Refused bool        `json:"refused,omitempty"`
	Until   time.Time   `json:"until,omitzero"`
	Since   time.Time   `json:"since,omitzero"`
	Retry   state.Retry `json:"retry,omitzero"`
}

// SetSnapshot says that a source lists s, with its class and its claim's volume resolved as
// they are now. It replaces what was said of the snapshot before.
func (c *Controller) SetSnapshot(s Snapshot) {
	s.Class.Parameters = maps.Clone(s.Class.Parameters)
	c.post(func(context.Context) {
		e := c.snapshots.entry(s.Key)
		if e.listed && e.want.equal(s) {
			return
		}
		e.want, e.listed = s, true
		named := e.group == nil && s.Handle != "" && s.Handle == e.rec.Handle
		if policy := s.Class.policy(); named && e.rec.Spec.Reclaim != policy {
			// The policy of a content may be changed while it is there.
			e.rec.Spec.Reclaim, e.unsaved = policy, true
		}
		e.rec.Content = clearPause(e.rec.Content)
		c.snapshots.touch(s.Key)
		c.touchRestores(s.Key)
	})
}

// RemoveSnapshot says that no source lists the snapshot. It is kept.
func (c *Controller) RemoveSnapshot(key Key) {
	c.post(func(context.Context) {
		if e := c.snapshots.entries[key]; e != nil && e.listed {
			e.want, e.listed = Snapshot{}, false
			c.snapshots.touch(key)
			c.touchRestores(key)
		}
	})
}

// RetrySnapshot ends the wait of a snapshot, or of the group snapshot that it is one of, after a
// failure, or after an answer that it is not ready.
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

// DeleteSnapshot deletes a snapshot and the data in it. Its errors, and what holds after
// it, are those of [Controller.Delete]; a claim that is to be made of the snapshot uses it.
func (c *Controller) DeleteSnapshot(ctx context.Context, key Key, retained bool) error {
	err := c.do(ctx, func(run context.Context) error { return c.deleteSnapshot(run, key, retained) })
	if err != nil {
		return fmt.Errorf("delete snapshot %s: %w", key, err)
	}
	return nil
}

// deleteSnapshot runs in Run's goroutine.
func (c *Controller) deleteSnapshot(ctx context.Context, key Key, retained bool) error {
	e := c.snapshots.entries[key]
	switch {
	case e == nil || e.rec.empty() && e.unreadable == "" && !e.listed:
		return ErrNotFound
	case e.unreadable != "":
		return fmt.Errorf("%w: %s", ErrUnreadable, e.unreadable)
	case e.group != nil:
		return fmt.Errorf("%w, %s, which is deleted as a whole", ErrGrouped, e.group.key)
	case e.rec.Delete:
		return nil
	case e.listed:
		return ErrListed
	case e.rec.Spec.Reclaim == Retain && e.rec.Content.Phase != state.Absent && !retained:
		return fmt.Errorf("%w: snapshot %s", ErrRetained, cmp.Or(e.rec.Handle, e.rec.Name))
	}
	if claim := c.restoring(e, true); claim != "" {
		return fmt.Errorf("%w: claim %s is to be made of it", ErrInUse, claim)
	}
	rec := e.rec
	rec.Delete, rec.Content.Failed = true, nil
	if err := snapshotBucket().commit(ctx, c.cfg, map[Key]snapshotRecord{key: rec}); err != nil {
		return err
	}
	c.setSnapshot(e, rec)
	c.snapshots.touch(key)
	return nil
}

// dueAt is a fact whose next call is due at once.
func clearPause(f state.Fact) state.Fact {
	again := f.Retry()
	again.NotBefore, again.Final = time.Time{}, false
	f.Failed = again.Kept()
	return f
}
