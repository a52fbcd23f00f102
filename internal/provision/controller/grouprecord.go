package controller

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// GroupBucket is the journal bucket of the group snapshots' records, keyed by [Key.String].
const GroupBucket = "groupsnapshots"

// groupVersion is the version that this code writes.
const groupVersion = 1

// groupRecord is the durable record of one group snapshot and its snapshots. They share a record
// because they are created and deleted together. Run owns the current one; otherwise it is a plain
// value.
type groupRecord struct {
	Version int    `json:"version"`
	Group   Key    `json:"group"`
	UID     string `json:"uid"`
	// Name is the name passed to CreateVolumeGroupSnapshot, which makes the call idempotent.
	Name string    `json:"name"`
	Spec groupSpec `json:"spec"`
	// Content says whether the snapshots exist, and paces the calls. It is Leaving without Delete
	// if only some snapshots were made: those are deleted, and the operation starts again.
	Content state.Fact `json:"content,omitzero"`
	// Looks counts the "not ready" answers.
	Looks   int           `json:"looks,omitempty"`
	Members []groupMember `json:"members,omitempty"`

	// The fields below are set once all snapshots exist.

	// Handle is the group_snapshot_id, or "" for a driver without groups.
	Handle      string      `json:"handle,omitempty"`
	Created     time.Time   `json:"created,omitzero"`
	Consistency Consistency `json:"consistency,omitempty"`

	// Delete means that a person asked to delete it. It cannot be undone.
	Delete bool `json:"delete,omitempty"`
}

// groupSpec is a CreateVolumeGroupSnapshot request without the name, the volumes and the values of
// secrets, and what else the class says.
type groupSpec struct {
	Class      string            `json:"class,omitempty"`
	Driver     state.DriverName  `json:"driver"`
	Parameters map[string]string `json:"parameters,omitempty"`
	Reclaim    ReclaimPolicy     `json:"deletionPolicy,omitempty"`
	// Each means that the driver makes no groups: each volume gets a CreateSnapshot while all are
	// frozen.
	Each bool `json:"each,omitempty"`
	// Freeze limits how long the file systems are frozen (nanoseconds).
	Freeze time.Duration   `json:"freeze,omitempty"`
	Secret state.SecretRef `json:"secret,omitzero"`
	Get    state.SecretRef `json:"getSecret,omitzero"`
}

// groupMember is one snapshot of a group.
type groupMember struct {
	// Claim is zero if a person named the group by its handle. Volume is then "" until the driver
	// reports it.
	Claim  Key        `json:"claim,omitzero"`
	Volume string     `json:"volume,omitempty"`
	Mode   state.Mode `json:"mode,omitempty"`
	// Snapshot is its name in the group's namespace.
	Snapshot string `json:"snapshot"`
	// Phase says whether the snapshot exists.
	Phase     state.Phase `json:"phase,omitempty"`
	Handle    string      `json:"handle,omitempty"`
	SizeBytes int64       `json:"sizeBytes,omitempty"`
	Created   time.Time   `json:"created,omitzero"`
	Ready     bool        `json:"ready,omitempty"`
}

func (r groupRecord) empty() bool { return r.Name == "" }

// torn reports whether snapshots go because the group's calls did not all succeed. Where records were lost, they may be
// those of a group that was whole: CreateSnapshot gives the earlier snapshot of its name.
func (r groupRecord) torn() bool { return r.Content.Phase == state.Leaving && r.Spec.Each && !r.Delete }

// ready reports whether volumes may be made from all snapshots.
func (r groupRecord) ready() bool {
	unready := func(m groupMember) bool { return !m.Ready }
	return r.Content.Phase == state.Present && !slices.ContainsFunc(r.Members, unready)
}

// anyMember reports whether a member is in the phase.
func (r groupRecord) anyMember(p state.Phase) bool {
	return slices.ContainsFunc(r.Members, func(m groupMember) bool { return m.Phase == p })
}

// mismatch says why the group snapshot in r is not the one in w, or returns "". It does not compare
// the members: an existing group does not change with its claims' labels (external-snapshotter,
// VolumeGroupSnapshotSource).
func (r groupRecord) mismatch(w Group) string {
	if w.Handle != "" && w.Handle != r.Handle {
		return fmt.Sprintf("it names the driver's group snapshot %s, but %s exists under its name; delete that first, or "+
			"give it another name", w.Handle, cmp.Or(r.Handle, r.Name))
	}
	if w.Class.Driver != "" && w.Class.Driver != r.Spec.Driver {
		return fmt.Sprintf("its class names driver %s, but its snapshots are of driver %s", w.Class.Driver, r.Spec.Driver)
	}
	return ""
}

// snapshot returns the record of a member as a snapshot's record.
func (r groupRecord) snapshot(m groupMember) snapshotRecord {
	return snapshotRecord{
		Snapshot: r.key(m), UID: r.UID + "-" + m.id(), Name: r.snapshotName(m),
		Spec: snapshotSpec{
			Class: r.Spec.Class, Driver: r.Spec.Driver, Reclaim: r.Spec.Reclaim, Claim: m.Claim, Volume: m.Volume,
			Mode: m.Mode, Freeze: r.Spec.Freeze, Secret: r.Spec.Secret,
		},
		Content: state.Fact{Phase: m.Phase}, Handle: m.Handle, SizeBytes: m.SizeBytes, Created: m.Created,
		Ready: m.Ready && r.Content.Phase == state.Present, Consistency: r.Consistency, Delete: r.Delete,
	}
}

// sharer returns r as the other records of its snapshots see it.
func (r groupRecord) sharer() sharer {
	leaving := r.Content.Phase == state.Leaving
	return sharer{key: r.Group, group: true, deleting: r.Delete || leaving, leaving: leaving}
}

// key returns the key of a member among the snapshots.
func (r groupRecord) key(m groupMember) Key {
	return Key{Namespace: r.Group.Namespace, Name: m.Snapshot}
}

// id distinguishes the snapshots of a group, even from those of the same group made again with
// other claims.
func (m groupMember) id() string {
	of := m.Volume
	if m.Claim == (Key{}) {
		of = m.Handle
	}
	sum := sha256.Sum256([]byte(of))
	return hex.EncodeToString(sum[:8])
}

func (r groupRecord) stamped() groupRecord {
	r.Version = groupVersion
	return r
}

func (r groupRecord) problem(key string) string {
	switch {
	case r.Version != groupVersion:
		return fmt.Sprintf("version %d, want %d", r.Version, groupVersion)
	case r.Group.String() != key:
		return fmt.Sprintf("it is of group snapshot %s", r.Group)
	case r.Name == "" || r.Spec.Driver == "":
		return "no name or driver"
	case len(r.Members) == 0 && r.Content.Phase != state.Absent:
		return fmt.Sprintf("it is %s without snapshots", r.Content.Phase)
	case r.Content.Phase == state.Present && r.Handle == "" && !r.Spec.Each:
		return "it is present without a handle"
	}
	for _, m := range r.Members {
		if m.Handle == "" && (m.Phase == state.Present || m.Phase == state.Leaving) {
			return fmt.Sprintf("snapshot %s is %s without a handle", m.Snapshot, m.Phase)
		}
	}
	return ""
}
