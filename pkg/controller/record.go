package controller

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// recordVersion is the version that this code writes.
const recordVersion = 1

// record is the durable memory of one claim: what was asked of the driver, and
// what is known of the answer. Owned by Run; a plain value otherwise.
type record struct {
	Version int    `json:"version"`
	Claim   Key    `json:"claim"`
	UID     string `json:"uid"`
	// Name is the name given to CreateVolume; with it the call is idempotent.
	Name string `json:"name"`
	// Spec is what CreateVolume was last called with, and what later calls need
	// of the class and the claim, which may be gone by then.
	Spec spec `json:"spec"`
	// Volume says whether the volume exists, and paces the calls that change that.
	Volume state.Fact `json:"volume,omitzero"`
	// Unanswered: a CreateVolume has no definite answer, so the same one has to be made
	// again (CSI 1.13, "a retry must carry the same fields"), until one says OK or that nothing was
	// made: an error of the second says nothing of what the first has done.
	Unanswered bool `json:"unanswered,omitempty"`

	// Known once the volume exists.

	Handle string `json:"handle,omitempty"`
	// RequestedBytes is the largest size asked for and given.
	RequestedBytes int64               `json:"requestedBytes,omitempty"`
	CapacityBytes  int64               `json:"capacityBytes,omitempty"`
	NodeBytes      int64               `json:"nodeBytes,omitempty"`
	Context        map[string]string   `json:"context,omitempty"`
	Topology       []map[string]string `json:"topology,omitempty"`

	// Growing is the size of a ControllerExpandVolume that has no definite
	// answer; 0 where there is none. Expand paces that call.
	Growing int64       `json:"growing,omitempty"`
	Expand  state.Retry `json:"expand,omitzero"`

	// Attributes are those that the volume has. Modifying are those of a ControllerModifyVolume
	// that has no definite answer; nil where there is none. Modify paces that call.
	Attributes Attributes  `json:"attributes,omitzero"`
	Modifying  *Attributes `json:"modifying,omitempty"`
	Modify     state.Retry `json:"modify,omitzero"`
	// Mixed: a ControllerModifyVolume failed and may have changed the volume all the same.
	Mixed bool `json:"mixed,omitempty"`

	// Attach says whether the volume is attached to this node, as node NodeID.
	// The caller that asks for it paces the calls.
	Attach state.Phase `json:"attach,omitempty"`
	NodeID string      `json:"nodeID,omitempty"`

	// Delete: a person asked for the data to be deleted. It cannot be taken back.
	Delete bool `json:"delete,omitempty"`
	// Reject says why a volume that was made cannot be used. No pod was given
	// it; it is deleted, and made anew. Rejects counts these in a row.
	Reject  string `json:"reject,omitempty"`
	Rejects int    `json:"rejects,omitempty"`
}

// spec is all of a CreateVolume request but the name and the secrets' values,
// and what else the class says about a volume.
type spec struct {
	Class        string             `json:"class,omitempty"`
	Driver       state.DriverName   `json:"driver"`
	SizeBytes    int64              `json:"sizeBytes"`
	LimitBytes   int64              `json:"limitBytes,omitempty"`
	AccessModes  []state.AccessMode `json:"accessModes"`
	Mode         state.Mode         `json:"mode"`
	FSType       string             `json:"fsType,omitempty"`
	MountOptions []string           `json:"mountOptions,omitempty"`
	Reclaim      ReclaimPolicy      `json:"reclaimPolicy,omitempty"`
	Parameters   map[string]string  `json:"parameters,omitempty"`
	Attributes   Attributes         `json:"attributes,omitzero"`
	Source       source             `json:"source,omitzero"`
	// Topology is this node's, where the driver has VOLUME_ACCESSIBILITY_CONSTRAINTS.
	Topology map[string]string `json:"topology,omitempty"`
	Secrets  secrets           `json:"secrets,omitzero"`
}

// source is the content source of a volume, by handles.
type source struct {
	Claim    Key    `json:"claim,omitzero"`
	Volume   string `json:"volume,omitempty"`
	Snapshot string `json:"snapshot,omitempty"`
}

// secrets names the secrets that calls for a volume take.
type secrets struct {
	Provision  state.SecretRef `json:"provision,omitzero"`
	Attach     state.SecretRef `json:"attach,omitzero"`
	Stage      state.SecretRef `json:"stage,omitzero"`
	Publish    state.SecretRef `json:"publish,omitzero"`
	Expand     state.SecretRef `json:"expand,omitzero"`
	NodeExpand state.SecretRef `json:"nodeExpand,omitzero"`
}

// encode writes r as it is kept in the journal.
func encode(r record) ([]byte, error) {
	r.Version = recordVersion
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode record of claim %s: %w", r.Claim, err)
	}
	return b, nil
}

// decode reads what encode wrote under key. What it cannot read as a whole, it refuses.
func decode(key string, b []byte) (record, error) {
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return record{}, fmt.Errorf("decode record of claim %s: %w", key, err)
	}
	switch {
	case r.Version != recordVersion:
		return record{}, fmt.Errorf("decode record of claim %s: version %d, want %d", key, r.Version, recordVersion)
	case r.Claim.String() != key:
		return record{}, fmt.Errorf("decode record of claim %s: it is of claim %s", key, r.Claim)
	case r.Name == "" || r.Spec.Driver == "":
		return record{}, fmt.Errorf("decode record of claim %s: no volume name or driver", key)
	case r.exists() && r.Handle == "":
		return record{}, fmt.Errorf("decode record of claim %s: volume is %s without a handle", key, r.Volume.Phase)
	}
	return r, nil
}

// exists reports whether the volume is known to be there or was, with a handle.
func (r record) exists() bool {
	return r.Volume.Phase == state.Present || r.Volume.Phase == state.Leaving
}

// empty reports whether nothing was ever asked of a driver.
func (r record) empty() bool { return r.Name == "" }

// usable reports whether pods may be given the volume.
func (r record) usable() bool { return r.Volume.Phase == state.Present && !r.Delete }

// volume is r as others see it.
func (r record) volume(listed bool) Volume {
	s := r.Spec
	return Volume{
		Name: r.Name, Claim: r.Claim, ClaimUID: r.UID, Class: s.Class, AttributesClass: r.Attributes.Class,
		Driver: s.Driver, Handle: r.Handle,
		CapacityBytes: r.CapacityBytes, RequestedBytes: r.RequestedBytes, NodeBytes: r.NodeBytes,
		Context: r.Context, FSType: s.FSType, MountOptions: s.MountOptions,
		AccessModes: s.AccessModes, Mode: s.Mode,
		AttachSecret: s.Secrets.Attach, StageSecret: s.Secrets.Stage,
		PublishSecret: s.Secrets.Publish, NodeExpandSecret: s.Secrets.NodeExpand,
		Topology: r.Topology, ReclaimPolicy: s.Reclaim, Released: !listed,
		ReclaimNote: r.reclaimNote(),
	}
}

func (r record) reclaimNote() string {
	note := "kept until it is deleted by name: csi-volmgr delete pvc " + r.Claim.Name + " -n " + r.Claim.Namespace
	if r.Spec.Reclaim == Retain {
		note += " --data"
	}
	return note
}

// compatible says why the volume in r cannot serve c; "" where it can.
func (r record) incompatible(c Claim) string {
	switch {
	case c.Class.Provisioner != "" && c.Class.Provisioner != r.Spec.Driver:
		return fmt.Sprintf("its class names driver %s, but its volume %s is of driver %s", c.Class.Provisioner, r.Name,
			r.Spec.Driver)
	case c.Mode != r.Spec.Mode:
		return fmt.Sprintf("it asks for volumeMode %s, but its volume %s is %s", c.Mode, r.Name, r.Spec.Mode)
	case !slices.Equal(c.AccessModes, r.Spec.AccessModes):
		return fmt.Sprintf("it asks for access modes %v, but its volume %s was made for %v", c.AccessModes, r.Name,
			r.Spec.AccessModes)
	}
	return ""
}
