package controller

import (
	"fmt"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// SnapshotBucket is the journal bucket of the snapshots' records, keyed by [Key.String].
const SnapshotBucket = "snapshots"

// snapshotVersion is the version that this code writes.
const snapshotVersion = 1

// snapshotRecord is the durable record of one snapshot. Run owns the current one; otherwise it is a
// plain value.
type snapshotRecord struct {
	Version  int    `json:"version"`
	Snapshot Key    `json:"snapshot"`
	UID      string `json:"uid"`
	// Name is the name passed to CreateSnapshot, which makes the call idempotent.
	Name string       `json:"name"`
	Spec snapshotSpec `json:"spec"`
	// Content says whether the snapshot exists, and paces the calls that create, delete or look it
	// up.
	Content state.Fact `json:"content,omitzero"`
	// Looks counts the "not ready" answers.
	Looks int `json:"looks,omitempty"`

	// The fields below are set once the snapshot exists.

	Handle    string    `json:"handle,omitempty"`
	SizeBytes int64     `json:"sizeBytes,omitempty"`
	Created   time.Time `json:"created,omitzero"`
	Ready     bool      `json:"ready,omitempty"`
	// Consistency is set if the spec asks for a freeze.
	Consistency Consistency `json:"consistency,omitempty"`

	// Delete means that a person asked to delete the snapshot. It cannot be undone.
	Delete bool `json:"delete,omitempty"`
	// Former is the handle of a snapshot that the driver made under Name for an earlier object, and that
	// another record has. Until that goes, the driver would give it to a new snapshot of the name.
	Former string `json:"former,omitempty"`
}

// snapshotSpec is a CreateSnapshot request without the name and the values of secrets, and what
// else the class says about a snapshot.
type snapshotSpec struct {
	Class      string            `json:"class,omitempty"`
	Driver     state.DriverName  `json:"driver"`
	Parameters map[string]string `json:"parameters,omitempty"`
	Reclaim    ReclaimPolicy     `json:"deletionPolicy,omitempty"`
	Claim      Key               `json:"claim,omitzero"`
	// Volume is the source_volume_id, or "" if a person named the snapshot by its handle.
	Volume string `json:"volume,omitempty"`
	// Mark is the source volume's when the snapshot was begun.
	Mark string     `json:"mark,omitempty"`
	Mode state.Mode `json:"mode,omitempty"`
	// Freeze limits how long the file system is frozen (nanoseconds).
	Freeze time.Duration   `json:"freeze,omitempty"`
	Secret state.SecretRef `json:"secret,omitzero"`
	List   state.SecretRef `json:"listSecret,omitzero"`
}

func (r snapshotRecord) empty() bool { return r.Name == "" }

// former reports whether r is only what is left of an earlier object, which has no status.
func (r snapshotRecord) former() bool { return r.Former != "" && r.Content.Phase == state.Absent }

// formerOf returns the driver's snapshot that was made under the name for an earlier object, or the zero
// value's.
func (r snapshotRecord) formerOf() handleOf { return handleOf{r.Spec.Driver, r.Former} }

// left returns what is left of r once its object is gone and others have its handle, if held is set. It is
// empty if the driver was asked for nothing under the name, or has nothing of it.
func (r snapshotRecord) left(held bool) snapshotRecord {
	former := r.Former
	switch {
	case held && r.Spec.Volume != "":
		former = r.Handle
	case !held && former == r.Handle:
		former = ""
	}
	if former == "" {
		return snapshotRecord{}
	}
	return snapshotRecord{
		Snapshot: r.Snapshot, UID: r.UID, Name: r.Name, Spec: snapshotSpec{Driver: r.Spec.Driver}, Former: former,
	}
}

// usable reports whether volumes may be made from the snapshot.
func (r snapshotRecord) usable() bool {
	return r.Content.Phase == state.Present && r.Ready && !r.Delete
}

// mismatch says why the snapshot in r is not the one in w, or returns "".
func (r snapshotRecord) mismatch(w Snapshot) string {
	switch {
	case w.Handle != "" && w.Handle != r.Handle:
		return fmt.Sprintf("it names the driver's snapshot %s, but %s exists under its name; delete that first, or give it "+
			"another name", w.Handle, r.Handle)
	case w.Handle == "" && w.Claim != r.Spec.Claim:
		return fmt.Sprintf("it asks for a snapshot of claim %s, but one of claim %s exists under its name; delete that "+
			"first, or give it another name", w.Claim, r.Spec.Claim)
	case w.Class.Driver != "" && w.Class.Driver != r.Spec.Driver:
		return fmt.Sprintf("its class names driver %s, but snapshot %s is of driver %s", w.Class.Driver, r.Handle,
			r.Spec.Driver)
	}
	return ""
}

// sharer returns r as the other records of the driver's snapshot see it.
func (r snapshotRecord) sharer() sharer {
	leaving := r.Content.Phase == state.Leaving
	return sharer{key: r.Snapshot, deleting: r.Delete || leaving, leaving: leaving}
}

// source returns the id of the source volume, or "" if it is unknown.
func (r snapshotRecord) source() state.VolumeID {
	if r.Spec.Volume == "" {
		return ""
	}
	return state.SharedID(r.Spec.Driver, r.Spec.Volume)
}

func (r snapshotRecord) stamped() snapshotRecord {
	r.Version = snapshotVersion
	return r
}

func (r snapshotRecord) problem(key string) string {
	switch {
	case r.Version != snapshotVersion:
		return fmt.Sprintf("version %d, want %d", r.Version, snapshotVersion)
	case r.Snapshot.String() != key:
		return fmt.Sprintf("it is of snapshot %s", r.Snapshot)
	case r.Name == "" || r.Spec.Driver == "":
		return "no name or driver"
	case r.Handle == "" && (r.Content.Phase == state.Present || r.Content.Phase == state.Leaving):
		return fmt.Sprintf("snapshot is %s without a handle", r.Content.Phase)
	}
	return ""
}
