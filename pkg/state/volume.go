package state

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Volume is the durable record of one volume on this node: all that is known,
// and all that its removal needs without any API object. It is a value; what it
// points to is never changed, only replaced. Every record has a Spec.
type Volume struct {
	ID VolumeID `json:"id"`
	// Spec is what the calls say about the volume. It is fixed while anything
	// of the volume is not absent, so that a repeated call repeats its request
	// (CSI 1.13, "retry must carry the same fields").
	Spec *Spec `json:"spec"`
	// Needs says which of the facts below this volume has; fixed like Spec.
	Needs Needs `json:"needs"`
	// For lists, sorted, the pods for whose sake attach or stage was begun. It
	// guards a volume that no pod has mounted yet against removal while one of
	// these pods cannot be resolved (rule 5).
	For []PodUID `json:"for,omitempty"`

	Attach Fact `json:"attach,omitzero"`
	// PublishContext is what Attach returned; it goes into Stage and Publish.
	PublishContext map[string]string `json:"publishContext,omitempty"`
	Stage          Fact              `json:"stage,omitzero"`
	// Staged is what the kernel showed at Spec.StagePath when Stage succeeded.
	Staged Seen `json:"staged,omitzero"`
	// SizeBytes is the size the node is known to serve; 0 means no opinion.
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// ExpandFailed paces NodeExpandVolume. Expansion is no fact of its own: it can be
	// repeated at any time and never undone.
	ExpandFailed *Retry `json:"expand,omitempty"`
	// Mounts has an entry for every pod whose fact is not absent.
	Mounts map[PodUID]Mount `json:"mounts,omitempty"`
}

// Needs says which steps a volume has before it can be published.
type Needs struct {
	// Attach: the driver's ControllerPublishVolume is called by csi-volmgr.
	Attach bool `json:"attach,omitempty"`
	// Stage: the driver has STAGE_UNSTAGE_VOLUME and the volume is not inline.
	Stage bool `json:"stage,omitempty"`
}

// Mount is the record of a volume as one pod has it.
type Mount struct {
	Fact
	MountSpec
	// Revision is the content last published; "" for kinds without content of ours.
	Revision string `json:"revision,omitempty"`
	// RevisionAt is when that was; zero where there is no Revision, or an older
	// version published it.
	RevisionAt time.Time `json:"revisionAt,omitzero"`
	// Seen is what the kernel showed at Target when Publish succeeded.
	Seen Seen `json:"seen,omitzero"`
	// Waits: the volume was to grow when it was published, and the pod is not to
	// have it before that is done or turns out to be impossible.
	Waits bool `json:"waits,omitempty"`
	// RenewAt is when it is to be published again, with what Renewal says; zero
	// is never.
	RenewAt time.Time `json:"renewAt,omitzero"`
	// NoEffect counts the Publish calls that the driver answered OK while the kernel
	// showed no mount. A driver may count each of them as a publication, so each is
	// undone by an Unpublish of its own.
	NoEffect int `json:"noEffect,omitempty"`
}

// MountSpec is what Publish says about one pod's use of a volume; fixed while
// the mount is not absent.
type MountSpec struct {
	Pod Pod `json:"pod"`
	// Names are the pod's own names for the volume, sorted: more than one when
	// two entries of the pod's spec name the same claim.
	Names []string `json:"names"`
	// Target is the path given to Publish.
	Target string `json:"target"`
	// DevicePath is, for a raw block volume, the pod's symlink to the device
	// (pods/<uid>/volumeDevices/...); "" otherwise.
	DevicePath string `json:"devicePath,omitempty"`
	// HostPath is where a container runtime finds the volume, where that
	// is not Target: the path of a hostPath volume; "" otherwise.
	HostPath string `json:"hostPath,omitempty"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	// FSGroup is the pod's securityContext.fsGroup, or nil.
	FSGroup *int64 `json:"fsGroup,omitempty"`
	// SELinuxLabel is the label that the pod wants the volume to be mounted with;
	// "" where labels are the runtime's.
	SELinuxLabel string `json:"seLinuxLabel,omitempty"`
	// Ownership says that the node gives the files of a CSI volume to FSGroup
	// after it is published, unless the driver does that itself.
	Ownership Ownership `json:"ownership,omitempty"`
	// Context holds what the publish call adds to the volume context for this
	// pod (csi.storage.k8s.io/pod.name and its like). No token, no secret.
	Context map[string]string `json:"context,omitempty"`
	// Renewal is what the driver wants anew with every publish call. It is not
	// fixed: each call is made with what the driver wants by then.
	Renewal Renewal `json:"renewal,omitzero"`
}

// Renewal is what a CSI driver wants to be given with a publish call that is
// not the same from one to the next. It never holds a token itself.
type Renewal struct {
	// Tokens are those of the pod's service account that are asked for.
	Tokens []TokenRequest `json:"tokens,omitempty"`
	// InSecrets: they go among the call's secrets and not into its volume context.
	InSecrets bool `json:"inSecrets,omitempty"`
	// Republish: the call is to be repeated from time to time while the volume
	// is mounted (requiresRepublish).
	Republish bool `json:"republish,omitempty"`
}

// TokenRequest asks for a token of a pod's service account.
type TokenRequest struct {
	// Audience is "" where the issuer is to choose it.
	Audience string `json:"audience,omitempty"`
	// Lifetime is 0 where the issuer is to choose it.
	Lifetime time.Duration `json:"lifetime,omitempty"`
}

// Ownership is how files are given to a pod's group; "" is not at all.
type Ownership string

// The values of fsGroupChangePolicy.
const (
	// OwnAlways looks at every file.
	OwnAlways Ownership = "Always"
	// OwnOnRootMismatch leaves all as it is where the root directory is right.
	OwnOnRootMismatch Ownership = "OnRootMismatch"
)

// Pod names a pod for people and for requests.
type Pod struct {
	UID            PodUID `json:"uid"`
	Namespace      string `json:"namespace"`
	Name           string `json:"name"`
	ServiceAccount string `json:"serviceAccount,omitempty"`
}

// Mode is how a volume is handed to a pod.
type Mode string

// The two volume modes of Kubernetes.
const (
	Filesystem Mode = "Filesystem"
	Block      Mode = "Block"
)

// AccessMode is a PersistentVolume access mode by its Kubernetes name.
type AccessMode string

// The access modes of Kubernetes.
const (
	ReadWriteOnce    AccessMode = "ReadWriteOnce"
	ReadOnlyMany     AccessMode = "ReadOnlyMany"
	ReadWriteMany    AccessMode = "ReadWriteMany"
	ReadWriteOncePod AccessMode = "ReadWriteOncePod"
)

// Spec is what the calls say about a volume, without secrets.
type Spec struct {
	Driver DriverName `json:"driver"`
	// Handle is the CSI volume_id; "" for built-in kinds.
	Handle string `json:"handle,omitempty"`
	// Name is the PersistentVolume's name, or for an inline volume its name in the pod.
	Name string `json:"name"`
	// Claim is "namespace/name" of the claim through which the volume is used; for people.
	Claim string `json:"claim,omitempty"`
	// Ephemeral marks an inline CSI volume: published without attach and stage.
	Ephemeral bool `json:"ephemeral,omitempty"`
	// Builtin marks a kind served in this process.
	Builtin bool `json:"builtin,omitempty"`
	// NoAttach: the driver's CSIDriver object says attachRequired: false, so
	// ControllerPublishVolume is not called even if the driver has it. It counts
	// when a volume is begun; calls do not say it.
	NoAttach bool `json:"noAttach,omitempty"`
	// Migrated: an in-tree source that a CSI driver serves; for measurements.
	Migrated   bool     `json:"migrated,omitempty"`
	Mode       Mode     `json:"mode"`
	FSType     string   `json:"fsType,omitempty"`
	MountFlags []string `json:"mountFlags,omitempty"`
	// MountGroup is the group id that the driver itself gives the volume's files
	// (VOLUME_MOUNT_GROUP), in stage and in every publish alike; "" for none.
	// Wishes have none: pkg/manager/plan chooses it from those of the pods.
	MountGroup string `json:"mountGroup,omitempty"`
	// SELinuxLabel is the label with which the volume is mounted, in stage and in
	// every publish alike; "" for none. Chosen as MountGroup is.
	SELinuxLabel string       `json:"seLinuxLabel,omitempty"`
	AccessModes  []AccessMode `json:"accessModes,omitempty"`
	// Context is the CSI volume_context, passed on unchanged.
	Context map[string]string `json:"context,omitempty"`
	// Config is a built-in kind's own source as that kind defines it.
	Config json.RawMessage `json:"config,omitempty"`
	// PublishContext is given where a cluster attaches (VolumeAttachment); where
	// csi-volmgr attaches, it is in the record instead.
	PublishContext map[string]string `json:"publishContext,omitempty"`
	// AttachName is the name of a built-in kind's volume in status.volumesInUse and
	// status.volumesAttached of the Node, where a controller of the cluster attaches
	// it; "" where none does. A CSI volume's name follows from its id (AttachedAs).
	// Calls do not say it.
	AttachName string `json:"attachName,omitempty"`
	// Attachment is the UID of the VolumeAttachment where a cluster attaches; ""
	// where it is not known. Another one means that the volume was detached and
	// attached meanwhile, perhaps as another device. Calls do not say it.
	Attachment string `json:"attachment,omitempty"`
	// StagePath is the staging_target_path; "" for kinds without a stage.
	StagePath  string    `json:"stagePath,omitempty"`
	AttachRef  SecretRef `json:"attachSecret,omitzero"`
	StageRef   SecretRef `json:"stageSecret,omitzero"`
	PublishRef SecretRef `json:"publishSecret,omitzero"`
	ExpandRef  SecretRef `json:"expandSecret,omitzero"`
}

// SecretRef names a secret. The zero value names none.
type SecretRef struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// Value is what s points to, and the zero value for none: of what is not known.
func (s *Spec) Value() Spec {
	if s == nil {
		return Spec{}
	}
	return *s
}

// AttachedAs is the name under which Kubernetes' attach-detach controller knows the
// volume (its UniqueVolumeName); "" for a volume that no controller attaches.
func (s *Spec) AttachedAs(id VolumeID) string {
	switch {
	case s == nil || s.Ephemeral || s.NoAttach:
		return ""
	case s.Builtin:
		return s.AttachName
	}
	return csiAttachName(id)
}

func csiAttachName(id VolumeID) string { return "kubernetes.io/csi/" + string(id) }

// InUse is a volume that a controller of the cluster attaches and that this node uses.
type InUse struct {
	ID VolumeID
	// Name is what status.volumesInUse and status.volumesAttached call it.
	Name string
}

// UnreadableAttachedAs is AttachedAs of a volume whose record cannot be read: any CSI
// volume may be attached.
func UnreadableAttachedAs(id VolumeID) string {
	if !strings.Contains(string(id), "^") {
		return ""
	}
	return csiAttachName(id)
}

// Exclusive reports whether only one pod may have the volume (ReadWriteOncePod).
func (s *Spec) Exclusive() bool {
	return s != nil && len(s.AccessModes) == 1 && s.AccessModes[0] == ReadWriteOncePod
}

// MountOptions are the volume's own, in their order, and last its SELinux label,
// whose commas need the quotes (mount(8), context=).
func (s *Spec) MountOptions() []string {
	options := slices.Clone(s.MountFlags)
	if s.SELinuxLabel == "" {
		return options
	}
	return append(options, fmt.Sprintf("context=%q", s.SELinuxLabel))
}

// Equal reports whether calls made for s and o would say the same.
func (s *Spec) Equal(o *Spec) bool {
	if s == o || s == nil || o == nil {
		return s == o
	}
	return s.Driver == o.Driver && s.Handle == o.Handle && s.Name == o.Name &&
		s.Ephemeral == o.Ephemeral && s.Builtin == o.Builtin &&
		s.Mode == o.Mode && s.FSType == o.FSType && s.StagePath == o.StagePath && s.MountGroup == o.MountGroup &&
		s.SELinuxLabel == o.SELinuxLabel &&
		s.AttachRef == o.AttachRef && s.StageRef == o.StageRef &&
		s.PublishRef == o.PublishRef && s.ExpandRef == o.ExpandRef &&
		slices.Equal(s.MountFlags, o.MountFlags) && slices.Equal(s.AccessModes, o.AccessModes) &&
		maps.Equal(s.Context, o.Context) && maps.Equal(s.PublishContext, o.PublishContext) &&
		bytes.Equal(s.Config, o.Config)
}

// Equal reports whether a publish call made for m and o would say the same.
// Names are for people and are not said; what Renewal brings differs each time.
func (m MountSpec) Equal(o MountSpec) bool {
	return m.Pod == o.Pod && m.Target == o.Target && m.DevicePath == o.DevicePath && m.HostPath == o.HostPath &&
		m.ReadOnly == o.ReadOnly && maps.Equal(m.Context, o.Context) && equalPtr(m.FSGroup, o.FSGroup) &&
		m.Ownership == o.Ownership && m.SELinuxLabel == o.SELinuxLabel
}

func equalPtr(a, b *int64) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// Clear reports whether nothing of the volume is on the host or may be.
func (v Volume) Clear() bool {
	return v.Attach.Phase == Absent && v.Stage.Phase == Absent && v.Unmounted()
}

// Unmounted reports whether every pod's mount is absent.
func (v Volume) Unmounted() bool {
	for _, m := range v.Mounts {
		if m.Phase != Absent {
			return false
		}
	}
	return true
}

// InUse reports whether the volume must still be counted as in use on this
// node (rule 3): anything that a node call made may be there.
func (v Volume) InUse() bool {
	return v.Stage.Phase != Absent || !v.Unmounted()
}

// Sizes is how large what is at a path is (bytes); a field is 0 where that is not
// known, or where it is not that of the path alone.
type Sizes struct {
	Device, FileSystem int64
}

// Seen is what the kernel shows at a path.
type Seen struct {
	// Exists: there is something at the path. A symbolic link is not followed.
	Exists bool `json:"exists,omitempty"`
	// Mounted: the path is the root of a mount.
	Mounted bool `json:"mounted,omitempty"`
	// MountID is the kernel's unique, never reused id of the topmost mount
	// there (Linux 6.8), or 0 where the kernel cannot tell.
	MountID uint64 `json:"mountID,omitempty"`
	// Dev is the device of what is there, as major<<32|minor; 0 where unknown.
	Dev uint64 `json:"dev,omitempty"`
	// Layers is how many mounts are stacked at the path; 0 where not mounted.
	Layers int `json:"layers,omitempty"`
	// BlockDevice: what is there is a block device node.
	BlockDevice bool `json:"blockDevice,omitempty"`
	// ReadOnly: the mount or its file system is read-only.
	ReadOnly bool `json:"readOnly,omitempty"`
}
