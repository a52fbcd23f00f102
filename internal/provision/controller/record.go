package controller

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// recordVersion is the version that this code writes.
const recordVersion = 1

// record is the durable record of one claim: what the driver was asked for, and what is known of
// its answers. Run owns the current one; otherwise it is a plain value.
type record struct {
	Version int    `json:"version"`
	Claim   Key    `json:"claim"`
	UID     string `json:"uid"`
	// Name is the name passed to CreateVolume, which makes the call idempotent.
	Name string `json:"name"`
	// MadeFor is the claim that the volume was made for, if it was moved to Claim since. The next volume of
	// that claim has another name.
	MadeFor Key `json:"madeFor,omitzero"`
	// Parked is a note about a volume that was moved out of the way (see [Controller.Move]).
	Parked json.RawMessage `json:"parked,omitempty"`
	// Mark tells the volume from earlier and later ones: a driver whose handles follow from names gives the handle
	// of a deleted volume to the next one of its claim. Volumes of earlier versions have none.
	Mark string `json:"mark,omitempty"`
	// Spec is the last CreateVolume request, and what later calls need of the class and the claim,
	// which may be gone by then.
	Spec spec `json:"spec"`
	// Volume says whether the volume exists, and paces the calls that create or delete it.
	Volume state.Fact `json:"volume,omitzero"`
	// Unanswered means that a CreateVolume has no definite answer. The same call has to be repeated
	// (CSI 1.13, "a retry must carry the same fields") until one returns OK or says that nothing
	// was made: an error of the second call says nothing about the effect of the first.
	Unanswered bool `json:"unanswered,omitempty"`
	// Sole means that no source's PersistentVolume stands in the volume's place. A volume of a version that
	// let one stand there has it once none does.
	Sole bool `json:"sole,omitempty"`

	// The fields below are set once the volume exists.

	Handle string `json:"handle,omitempty"`
	// RequestedBytes is the largest size that was asked for and granted.
	RequestedBytes int64               `json:"requestedBytes,omitempty"`
	CapacityBytes  int64               `json:"capacityBytes,omitempty"`
	NodeBytes      int64               `json:"nodeBytes,omitempty"`
	Context        map[string]string   `json:"context,omitempty"`
	Topology       []map[string]string `json:"topology,omitempty"`

	// Growing is the size of a ControllerExpandVolume without a definite answer; 0 if there is
	// none. Expand paces that call.
	Growing int64       `json:"growing,omitempty"`
	Expand  state.Retry `json:"expand,omitzero"`

	// Attributes are the volume's attributes. Modifying are those of a ControllerModifyVolume
	// without a definite answer; nil if there is none. Modify paces that call.
	Attributes Attributes  `json:"attributes,omitzero"`
	Modifying  *Attributes `json:"modifying,omitempty"`
	Modify     state.Retry `json:"modify,omitzero"`
	// Mixed means that a ControllerModifyVolume failed but may have changed the volume.
	Mixed bool `json:"mixed,omitempty"`

	// Attach says whether the volume is attached to this node, under the node id NodeID. The caller
	// that asks for it paces the calls.
	Attach state.Phase `json:"attach,omitempty"`
	NodeID string      `json:"nodeID,omitempty"`

	// Delete means that a person asked to delete the data. It cannot be undone.
	Delete bool `json:"delete,omitempty"`
}

// spec is a CreateVolume request without the name and the values of secrets, and what else the
// class says about a volume.
type spec struct {
	Class       string             `json:"class,omitempty"`
	Driver      state.DriverName   `json:"driver"`
	SizeBytes   int64              `json:"sizeBytes"`
	LimitBytes  int64              `json:"limitBytes,omitempty"`
	AccessModes []state.AccessMode `json:"accessModes"`
	// EachMode asks for each of AccessModes. The request of an earlier version asked for one that stood for all.
	EachMode     bool              `json:"eachMode,omitempty"`
	Mode         state.Mode        `json:"mode"`
	FSType       string            `json:"fsType,omitempty"`
	MountOptions []string          `json:"mountOptions,omitempty"`
	Reclaim      ReclaimPolicy     `json:"reclaimPolicy,omitempty"`
	Parameters   map[string]string `json:"parameters,omitempty"`
	Attributes   Attributes        `json:"attributes,omitzero"`
	Source       source            `json:"source,omitzero"`
	// Topology is this node's topology if the driver has VOLUME_ACCESSIBILITY_CONSTRAINTS.
	Topology map[string]string `json:"topology,omitempty"`
	Secrets  secrets           `json:"secrets,omitzero"`
}

// source is the content source of a volume. Volume and Snapshot are handles.
type source struct {
	Claim    Key    `json:"claim,omitzero"`
	Volume   string `json:"volume,omitempty"`
	Snapshot string `json:"snapshot,omitempty"`
}

// secrets are the secrets for the calls of a volume.
type secrets struct {
	Provision  state.SecretRef `json:"provision,omitzero"`
	Attach     state.SecretRef `json:"attach,omitzero"`
	Stage      state.SecretRef `json:"stage,omitzero"`
	Publish    state.SecretRef `json:"publish,omitzero"`
	Expand     state.SecretRef `json:"expand,omitzero"`
	NodeExpand state.SecretRef `json:"nodeExpand,omitzero"`
	Modify     state.SecretRef `json:"modify,omitzero"`
}

func (r record) stamped() record {
	r.Version = recordVersion
	return r
}

func (r record) problem(key string) string {
	switch {
	case r.Version != recordVersion:
		return fmt.Sprintf("version %d, want %d", r.Version, recordVersion)
	case r.Claim.String() != key:
		return fmt.Sprintf("it is of claim %s", r.Claim)
	case r.Name == "" || r.Spec.Driver == "":
		return "no volume name or driver"
	case r.exists() && r.Handle == "":
		return fmt.Sprintf("volume is %s without a handle", r.Volume.Phase)
	}
	return ""
}

// exists reports whether the volume has a handle and is not known to be gone.
func (r record) exists() bool {
	return r.Volume.Phase == state.Present || r.Volume.Phase == state.Leaving
}

// empty reports whether no driver was ever asked for the volume.
func (r record) empty() bool { return r.Name == "" }

// usable reports whether pods may use the volume.
func (r record) usable() bool { return r.Volume.Phase == state.Present && !r.Delete }

// volume returns the public view of r. A claim that is listed again has the volume, whatever its
// UID is by then.
func (r record) volume(w want) Volume {
	s, uid := r.Spec, r.UID
	if w.Listed {
		uid = w.Claim.UID
	}
	return Volume{
		Name: r.Name, Claim: r.Claim, ClaimUID: uid, Class: s.Class, AttributesClass: r.Attributes.Class,
		Driver: s.Driver, Handle: r.Handle, Mark: r.Mark,
		CapacityBytes: r.CapacityBytes, RequestedBytes: r.RequestedBytes, NodeBytes: r.NodeBytes,
		Context: r.Context, FSType: s.FSType, MountOptions: s.MountOptions,
		AccessModes: s.AccessModes, Mode: s.Mode,
		AttachSecret: s.Secrets.Attach, StageSecret: s.Secrets.Stage,
		PublishSecret: s.Secrets.Publish, NodeExpandSecret: s.Secrets.NodeExpand,
		Topology: r.Topology, ReclaimPolicy: s.Reclaim, Released: !w.Listed,
		ReclaimNote: r.reclaimNote(),
	}
}

// secretOf returns the secret that a call for the volume sends.
func (r record) secretOf(v verb) state.SecretRef {
	switch v {
	case createVolume, deleteVolume:
		return r.Spec.Secrets.Provision
	case modifyVolume: // a class that names none, and a volume of before, has the provisioner's
		return cmp.Or(r.Spec.Secrets.Modify, r.Spec.Secrets.Provision)
	case expandVolume:
		return r.Spec.Secrets.Expand
	}
	return state.SecretRef{}
}

// noSecret returns the cause of a call that could not be made because its secret could not be read.
func (r record) noSecret(call string) state.Cause {
	ref := r.secretOf(createVolume)
	for _, v := range []verb{expandVolume, modifyVolume} {
		if call == v.String() {
			ref = r.secretOf(v)
		}
	}
	return state.Cause{Code: state.NoSecret, Of: ref.Namespace + "/" + ref.Name}
}

func (r record) reclaimNote() string {
	note := "kept until it is deleted by name: csi-volmgr delete pvc " + r.Claim.Name + " -n " + r.Claim.Namespace
	if r.Spec.Reclaim == Retain {
		note += " --data"
	}
	return note
}

// incompatible says why the volume in r cannot serve c, or returns "".
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
