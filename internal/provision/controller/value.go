package controller

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Key identifies a claim by name, not by UID, so that a claim that is removed and listed again
// finds its data.
type Key struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// String returns "namespace/name", which is also the record's key in the journal.
func (k Key) String() string { return k.Namespace + "/" + k.Name }

func (k Key) compare(o Key) int {
	if c := strings.Compare(k.Namespace, o.Namespace); c != 0 {
		return c
	}
	return strings.Compare(k.Name, o.Name)
}

// Claim is a request for a volume of a class.
type Claim struct {
	Key
	// UID determines the volume's name, with the node's storage id; the name never changes.
	UID string
	// number tells the volumes apart that were made for one UID, if earlier ones were moved to other claims;
	// 0 and 1 are the first. The controller chooses it.
	number int
	// SizeBytes is the minimum size, LimitBytes the maximum; 0 means no maximum.
	SizeBytes, LimitBytes int64
	AccessModes           []state.AccessMode
	Mode                  state.Mode
	// Class is the resolved StorageClass of the claim.
	Class Class
	// Attributes is the resolved VolumeAttributesClass of the claim.
	Attributes AttributesClass
	// Annotations are those of the claim that its class names by [AnnotationTemplate].
	Annotations map[string]string
	// Source is the initial content of the volume; nil means an empty volume.
	Source *DataSource
	// Refused says which field of the claim is not supported, or is "". Such a claim gets no
	// volume, and a claim that already has one reports it.
	Refused string

	naming naming // set by SetClaim
}

// Class is a StorageClass: which driver makes a volume, and how.
type Class struct {
	Name string
	// Provisioner is the driver's name, or "" if the class was not found.
	Provisioner state.DriverName
	Parameters  map[string]string
	// FSType is the file system type if no parameter is one.
	FSType         string
	MountOptions   []string
	AllowExpansion bool
	// Retain keeps the volume and its data when the claim is deleted (reclaimPolicy).
	Retain bool
	// Metadata passes the names of the claim and its PersistentVolume to the driver, as
	// external-provisioner does with --extra-create-metadata.
	Metadata bool
	// Topologies lists where volumes may be made (allowedTopologies): in any of these, each with
	// the allowed values of a key. If it is empty, anywhere.
	Topologies []map[string][]string
}

// DataSource is the initial content of a new volume. Exactly one field is set, and Denied perhaps beside
// SnapshotHandle.
type DataSource struct {
	// Claim is the claim whose volume is cloned.
	Claim Key
	// Snapshot is a snapshot known to the controller.
	Snapshot Key
	// SnapshotHandle is the driver's snapshot_id.
	SnapshotHandle string
	// Denied says why the claim may not name the snapshot by SnapshotHandle, or is "". It has no effect on
	// a volume that was begun from that snapshot.
	Denied string
	// Unknown says why the source could not be resolved. Such a claim gets no volume: an empty one
	// instead of a copy would look like lost data.
	Unknown string
}

// ofClaim reports whether the volume will be a clone of another claim's volume.
func (s *DataSource) ofClaim() bool { return s != nil && s.Claim != (Key{}) }

// denied returns why the driver is not asked for a volume from s, or "". r is the volume's record: what was
// begun goes on.
func (s *DataSource) denied(r record) string {
	if s == nil || r.Volume.Phase == state.Entering && (r.Unanswered || r.Spec.Source.Snapshot == s.SnapshotHandle) {
		return ""
	}
	return s.Denied
}

// ofSnapshot reports whether the volume is to be made from a snapshot known by name.
func (s *DataSource) ofSnapshot() bool { return s != nil && s.Snapshot != (Key{}) }

func (c Claim) equal(o Claim) bool {
	return c.Key == o.Key && c.UID == o.UID && c.SizeBytes == o.SizeBytes &&
		c.LimitBytes == o.LimitBytes && c.Mode == o.Mode &&
		slices.Equal(c.AccessModes, o.AccessModes) && maps.Equal(c.Annotations, o.Annotations) &&
		c.Class.equal(o.Class) && c.Attributes.equal(o.Attributes) &&
		c.Refused == o.Refused && (c.Source == nil) == (o.Source == nil) && (c.Source == nil || *c.Source == *o.Source)
}

func (c Class) equal(o Class) bool {
	return c.Name == o.Name && c.Provisioner == o.Provisioner && c.FSType == o.FSType &&
		c.AllowExpansion == o.AllowExpansion && c.Retain == o.Retain && c.Metadata == o.Metadata &&
		maps.Equal(c.Parameters, o.Parameters) &&
		slices.Equal(c.MountOptions, o.MountOptions) &&
		slices.EqualFunc(c.Topologies, o.Topologies, func(a, b map[string][]string) bool {
			return maps.EqualFunc(a, b, slices.Equal[[]string])
		})
}

func (c Claim) clone() Claim {
	c.AccessModes = slices.Clone(c.AccessModes)
	c.Annotations = maps.Clone(c.Annotations)
	c.Class.Parameters = maps.Clone(c.Class.Parameters)
	c.Attributes.Parameters = maps.Clone(c.Attributes.Parameters)
	c.Class.MountOptions = slices.Clone(c.Class.MountOptions)
	if c.Source != nil {
		source := *c.Source
		c.Source = &source
	}
	return c
}

// Driver is a driver that is up.
type Driver struct {
	Name state.DriverName
	// Conn reaches the driver's Identity, Controller and Node services, or those without the Node
	// service if Node is set. The caller closes it after DriverDown. It comes from
	// pkg/csiclient, which refuses requests larger than CSI allows and removes secrets from errors
	// (rule 7).
	Conn grpc.ClientConnInterface
	// NodeID is the node_id from NodeGetInfo, for ControllerPublishVolume.
	NodeID string
	// Topology is this node's topology as the driver reports it.
	Topology map[string]string
	// Node is set if the Node service has an endpoint of its own.
	Node *NodePart
}

// NodePart is what the controller has to know of a Node service that Conn does not reach.
type NodePart struct {
	// Expand: the Node service has EXPAND_VOLUME.
	Expand bool
	// Unknown says why Expand, NodeID and Topology are not known yet; "" if they are.
	Unknown string
}

// Absence says why a driver's Controller service cannot be called.
type Absence struct {
	Problem string
	Code    state.CauseCode
}

// Volume is an existing volume, with what a PersistentVolume would contain. It is an immutable
// copy.
type Volume struct {
	// Name is "pvc-", an id that follows from the UID of the claim that the volume was made for and from the
	// node's storage id, and a number if volumes that were made for it before were moved to other claims.
	Name string `json:"name"`
	// Claim and ClaimUID identify the claim that has the volume, or that had it last. A claim of the
	// same name that is listed later has it too, and may have another UID.
	Claim    Key    `json:"claim"`
	ClaimUID string `json:"claimUID"`
	// Class is the name of the class that it was made with.
	Class string `json:"class,omitempty"`
	// AttributesClass is the name of its VolumeAttributesClass, or "".
	AttributesClass string           `json:"attributesClass,omitempty"`
	Driver          state.DriverName `json:"driver"`
	// Handle is the CSI volume_id.
	Handle string `json:"handle"`
	// Mark tells the volume from others that had its handle; "" if an earlier version made it.
	Mark string `json:"mark,omitempty"`
	// CapacityBytes is the size that the driver reports, NodeBytes the last known size on the node.
	// If they differ, the node has to expand the volume.
	CapacityBytes int64 `json:"capacityBytes"`
	// RequestedBytes is the largest size that its claim asked for and got. The volume never gets
	// smaller.
	RequestedBytes int64 `json:"requestedBytes,omitempty"`
	NodeBytes      int64 `json:"nodeBytes"`
	// Context is the CSI volume_context.
	Context      map[string]string  `json:"context,omitempty"`
	FSType       string             `json:"fsType,omitempty"`
	MountOptions []string           `json:"mountOptions,omitempty"`
	AccessModes  []state.AccessMode `json:"accessModes,omitempty"`
	Mode         state.Mode         `json:"mode"`
	// The secrets for node and controller calls of the volume.
	AttachSecret     state.SecretRef `json:"attachSecret,omitzero"`
	StageSecret      state.SecretRef `json:"stageSecret,omitzero"`
	PublishSecret    state.SecretRef `json:"publishSecret,omitzero"`
	NodeExpandSecret state.SecretRef `json:"nodeExpandSecret,omitzero"`
	// Topology lists from where it can be reached: any of these, or anywhere if empty.
	Topology []map[string]string `json:"topology,omitempty"`
	// ReclaimPolicy is the policy of its class when it was made, or "" if an earlier version, which
	// did not read the policy, made it.
	ReclaimPolicy ReclaimPolicy `json:"reclaimPolicy,omitempty"`
	// Released means that no source lists the claim. The volume is kept.
	Released bool `json:"released,omitempty"`
	// ReclaimNote tells a person how long the volume is kept.
	ReclaimNote string `json:"reclaimNote"`
}

// ID returns the manager's id of the volume.
func (v Volume) ID() state.VolumeID { return state.SharedID(v.Driver, v.Handle) }

// ReclaimPolicy says what happens to a volume when its claim is deleted (Kubernetes'
// persistentVolumeReclaimPolicy).
type ReclaimPolicy string

// The policies of volumes that drivers create.
const (
	Delete ReclaimPolicy = "Delete"
	Retain ReclaimPolicy = "Retain"
)

// Phase is the state of a claim, for people.
type Phase string

// The phases of a claim.
const (
	// Pending means that it has no volume yet.
	Pending Phase = "Pending"
	// Bound means that it has a volume.
	Bound Phase = "Bound"
	// Released means that no source lists it. Its volume, if it has one, is kept.
	Released Phase = "Released"
	// Deleting means that Delete was called and the volume may still exist.
	Deleting Phase = "Deleting"
)

// ClaimStatus is the status of one claim. It is an immutable copy.
type ClaimStatus struct {
	Claim Key    `json:"claim"`
	UID   string `json:"uid,omitempty"`
	Phase Phase  `json:"phase"`
	Class string `json:"class,omitempty"`
	// Source is the snapshot that its volume is made from; zero if there is none or the claim is
	// not listed.
	Source Key `json:"source,omitzero"`
	// WantBytes is the size that the claim asks for; 0 if it is not listed.
	WantBytes int64 `json:"wantBytes,omitempty"`
	// Volume is nil until the volume exists.
	Volume *Volume `json:"volume,omitempty"`
	// Begun means that a driver was asked for the volume, or may have been.
	Begun bool `json:"-"`
	// VolumeName is the name of the volume that a driver was asked for, or may have been; Sole means that no
	// source's PersistentVolume stands in its place ([Controller.SetSole]).
	VolumeName string `json:"-"`
	Sole       bool   `json:"-"`
	// Call is the CSI call in flight ("CreateVolume"), or "".
	Call string `json:"call,omitempty"`
	// Reason says, in one sentence, why the claim is not as wanted and no call is in flight. It is
	// "" if the claim is as wanted or a call is in flight.
	Reason string `json:"reason,omitempty"`
	// Refused means that only a change of the claim, its class or its driver helps.
	Refused bool `json:"refused,omitempty"`
	// Cause is Reason for programs.
	Cause state.Cause `json:"cause,omitzero"`
	// Until is when the claim is planned again if no event comes first; zero if only an event
	// helps.
	Until time.Time `json:"until,omitzero"`
	// Stalled means that nothing has begun and that Reason ends only with an event, such as the
	// registration of the driver. Away is the driver that cannot be called, if that is the reason.
	Stalled bool             `json:"-"`
	Away    state.DriverName `json:"-"`
	// Rejected means that the driver has refused the size that the claim asks for, or another part of the request,
	// and that nothing was made.
	Rejected bool `json:"-"`
	// Since is when Call or Reason began.
	Since time.Time `json:"since,omitzero"`
	// Parked is the note of [Controller.Move] about a parked volume, while no source lists the claim.
	Parked json.RawMessage `json:"-"`
	// Retry is the back-off and the last failure of the current step.
	Retry state.Retry `json:"retry,omitzero"`
}
