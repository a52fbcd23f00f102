package controller

import (
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Key names a claim. Claims are known by name, not by UID, so that one which
// vanished and came back finds its data again.
type Key struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// String is "namespace/name", which is also the record's key in the journal.
func (k Key) String() string { return k.Namespace + "/" + k.Name }

func (k Key) compare(o Key) int {
	if c := strings.Compare(k.Namespace, o.Namespace); c != 0 {
		return c
	}
	return strings.Compare(k.Name, o.Name)
}

// Claim is what a person wants: a volume of a class.
type Claim struct {
	Key
	// UID gives the volume its name for ever ("pvc-" and UID).
	UID string
	// SizeBytes is the least size; LimitBytes the most, 0 for no limit.
	SizeBytes, LimitBytes int64
	AccessModes           []state.AccessMode
	Mode                  state.Mode
	// Class is the class that the claim names, resolved.
	Class Class
	// Attributes is the VolumeAttributesClass that the claim names, resolved.
	Attributes AttributesClass
	// Source is what the volume is to hold in the beginning; nil for nothing.
	Source *DataSource
	// Refused says which field of the claim is not followed; "" for none. Such a claim
	// gets no volume, and one that has a volume says so.
	Refused string
}

// Class is a StorageClass: who makes a volume, and how.
type Class struct {
	Name string
	// Provisioner is the driver's name; "" where the class is not there.
	Provisioner    state.DriverName
	Parameters     map[string]string
	MountOptions   []string
	AllowExpansion bool
	// Retain: the volume and its data stay when the claim is deleted (reclaimPolicy).
	Retain bool
	// Metadata: the driver is told the names of the claim and of its PersistentVolume, as
	// external-provisioner does with --extra-create-metadata.
	Metadata bool
	// Topologies are where its volumes may be (allowedTopologies): any of these, each with
	// the values that a key may have. None is anywhere.
	Topologies []map[string][]string
}

// DataSource says what a new volume holds: exactly one field is set.
type DataSource struct {
	// Claim is another claim, whose volume is cloned.
	Claim Key
	// Snapshot is a snapshot that the controller knows: the volume is made of it.
	Snapshot Key
	// SnapshotHandle is the driver's snapshot_id.
	SnapshotHandle string
	// Unknown says why it is not known what is meant. Such a claim gets no
	// volume: an empty one in place of a copy would pass for lost data.
	Unknown string
}

// ofClaim reports whether the volume is to be a clone of another claim's.
func (s *DataSource) ofClaim() bool { return s != nil && s.Claim != (Key{}) }

// ofSnapshot reports whether the volume is to be made of a snapshot that is known by name.
func (s *DataSource) ofSnapshot() bool { return s != nil && s.Snapshot != (Key{}) }

func (c Claim) equal(o Claim) bool {
	return c.Key == o.Key && c.UID == o.UID && c.SizeBytes == o.SizeBytes &&
		c.LimitBytes == o.LimitBytes && c.Mode == o.Mode &&
		slices.Equal(c.AccessModes, o.AccessModes) && c.Class.equal(o.Class) && c.Attributes.equal(o.Attributes) &&
		c.Refused == o.Refused && (c.Source == nil) == (o.Source == nil) && (c.Source == nil || *c.Source == *o.Source)
}

func (c Class) equal(o Class) bool {
	return c.Name == o.Name && c.Provisioner == o.Provisioner &&
		c.AllowExpansion == o.AllowExpansion && c.Retain == o.Retain && c.Metadata == o.Metadata &&
		maps.Equal(c.Parameters, o.Parameters) &&
		slices.Equal(c.MountOptions, o.MountOptions) &&
		slices.EqualFunc(c.Topologies, o.Topologies, func(a, b map[string][]string) bool {
			return maps.EqualFunc(a, b, slices.Equal[[]string])
		})
}

func (c Claim) clone() Claim {
	c.AccessModes = slices.Clone(c.AccessModes)
	c.Class.Parameters = maps.Clone(c.Class.Parameters)
	c.Attributes.Parameters = maps.Clone(c.Attributes.Parameters)
	c.Class.MountOptions = slices.Clone(c.Class.MountOptions)
	if c.Source != nil {
		source := *c.Source
		c.Source = &source
	}
	return c
}

// Driver is a driver that is up, as this package needs it.
type Driver struct {
	Name state.DriverName
	// Conn reaches its Identity, Controller and Node services (CSI 1.13: one
	// endpoint serves all that a plugin has). The caller closes it after
	// DriverDown. It is pkg/csiclient's, which refuses requests that are larger
	// than CSI allows and takes secrets out of errors (rule 7).
	Conn grpc.ClientConnInterface
	// NodeID is what NodeGetInfo returned; ControllerPublishVolume is given it.
	NodeID string
	// Topology is this node's accessible topology as the driver sees it.
	Topology map[string]string
}

// Volume is a volume that exists, as a PersistentVolume would tell it. It is
// an immutable copy.
type Volume struct {
	// Name is "pvc-" and the claim's UID.
	Name string `json:"name"`
	// Claim and ClaimUID name the claim it was made for.
	Claim    Key    `json:"claim"`
	ClaimUID string `json:"claimUID"`
	// Class is the name of the class it was made by.
	Class string `json:"class,omitempty"`
	// AttributesClass is the name of the VolumeAttributesClass that it has; "" for none.
	AttributesClass string           `json:"attributesClass,omitempty"`
	Driver          state.DriverName `json:"driver"`
	// Handle is the CSI volume_id.
	Handle string `json:"handle"`
	// CapacityBytes is how large the driver says that it is; NodeBytes how large
	// the node was last known to serve it. Where they differ the node has to expand it.
	CapacityBytes int64 `json:"capacityBytes"`
	// RequestedBytes is the largest size that its claim asked for and got: it is not
	// made smaller.
	RequestedBytes int64 `json:"requestedBytes,omitempty"`
	NodeBytes      int64 `json:"nodeBytes"`
	// Context is the CSI volume_context.
	Context      map[string]string  `json:"context,omitempty"`
	FSType       string             `json:"fsType,omitempty"`
	MountOptions []string           `json:"mountOptions,omitempty"`
	AccessModes  []state.AccessMode `json:"accessModes,omitempty"`
	Mode         state.Mode         `json:"mode"`
	// The secrets that node and controller calls for the volume take.
	AttachSecret     state.SecretRef `json:"attachSecret,omitzero"`
	StageSecret      state.SecretRef `json:"stageSecret,omitzero"`
	PublishSecret    state.SecretRef `json:"publishSecret,omitzero"`
	NodeExpandSecret state.SecretRef `json:"nodeExpandSecret,omitzero"`
	// Topology is where it can be reached from: any of these. Empty means anywhere.
	Topology []map[string]string `json:"topology,omitempty"`
	// ReclaimPolicy is what its class said when it was made; "" where an earlier version
	// made it, which did not ask.
	ReclaimPolicy ReclaimPolicy `json:"reclaimPolicy,omitempty"`
	// Released: no source lists the claim. The volume is kept.
	Released bool `json:"released,omitempty"`
	// ReclaimNote tells a person how long the volume is kept.
	ReclaimNote string `json:"reclaimNote"`
}

// ID is the id under which the manager knows the volume.
func (v Volume) ID() state.VolumeID { return state.SharedID(v.Driver, v.Handle) }

// ReclaimPolicy says what becomes of a volume whose claim is deleted (Kubernetes'
// persistentVolumeReclaimPolicy).
type ReclaimPolicy string

// The policies of volumes that drivers make.
const (
	Delete ReclaimPolicy = "Delete"
	Retain ReclaimPolicy = "Retain"
)

// Phase is a claim's, for people.
type Phase string

// The phases of a claim.
const (
	// Pending: it has no volume yet.
	Pending Phase = "Pending"
	// Bound: it has one.
	Bound Phase = "Bound"
	// Released: no source lists it; its volume, if one was made, is kept.
	Released Phase = "Released"
	// Deleting: Delete was called, and the volume is not known to be gone.
	Deleting Phase = "Deleting"
)

// ClaimStatus is one claim as it stands. It is an immutable copy.
type ClaimStatus struct {
	Claim Key    `json:"claim"`
	UID   string `json:"uid,omitempty"`
	Phase Phase  `json:"phase"`
	Class string `json:"class,omitempty"`
	// Source is the snapshot that it is to be made of; none where it is not, or not listed.
	Source Key `json:"source,omitzero"`
	// WantBytes is the size that the claim asks for; 0 where it is not listed.
	WantBytes int64 `json:"wantBytes,omitempty"`
	// Volume is nil until the volume is there.
	Volume *Volume `json:"volume,omitempty"`
	// Call is the CSI call in flight ("CreateVolume"), "" where none is.
	Call string `json:"call,omitempty"`
	// Reason says, in one sentence, why the claim is not as wanted and nothing
	// is being done about it; "" where it is as wanted or a call is in flight.
	Reason string `json:"reason,omitempty"`
	// Refused: only a change of the claim, its class or its driver helps.
	Refused bool `json:"refused,omitempty"`
	// Until is when that is looked at again if no event comes first; zero means
	// that only an event helps.
	Until time.Time `json:"until,omitzero"`
	// Since is when Call or Reason began.
	Since time.Time `json:"since,omitzero"`
	// Retry is the pacing and the last failure of the step at hand.
	Retry state.Retry `json:"retry,omitzero"`
}
