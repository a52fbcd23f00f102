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

// Volume is the durable record of one volume on this node: everything that is known about
// it, and everything that its removal needs without any API object. It is a value; what
// it points to is replaced, never changed. Every record has a Spec.
type Volume struct {
	ID VolumeID `json:"id"`
	// Spec is what the calls say about the volume. It is fixed until all facts are
	// absent, so that a repeated call repeats its request (CSI 1.13, "retry must carry
	// the same fields").
	Spec *Spec `json:"spec"`
	// Needs says which of the facts below this volume has; fixed like Spec.
	Needs Needs `json:"needs"`
	// For lists, sorted, the pods for which attach or stage was begun. It protects a
	// volume that no pod has mounted yet from removal while one of these pods cannot be
	// resolved (rule 5).
	For []PodUID `json:"for,omitempty"`

	Attach Fact `json:"attach,omitzero"`
	// PublishContext is what Attach returned; Stage and Publish pass it on.
	PublishContext map[string]string `json:"publishContext,omitempty"`
	Stage          Fact              `json:"stage,omitzero"`
	// Staged is what the kernel showed at Spec.StagePath when Stage succeeded.
	Staged Seen `json:"staged,omitzero"`
	// SizeBytes is the size that the node is known to serve; 0 means unknown.
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// ExpandFailed paces NodeExpandVolume. Expansion is not a fact: it can be repeated at
	// any time and is never undone.
	ExpandFailed *Retry `json:"expand,omitempty"`
	// Mounts has an entry for every pod whose fact is not absent.
	Mounts map[PodUID]Mount `json:"mounts,omitempty"`
	// Former are targets, by pod, that a driver which counts publications on its own disk
	// may still count: Unpublish removed the mount, or a reboot did.
	Former map[PodUID]string `json:"former,omitempty"`
}

// Needs says which steps precede the publication of a volume.
type Needs struct {
	// Attach means that csi-volmgr calls the driver's ControllerPublishVolume.
	Attach bool `json:"attach,omitempty"`
	// Stage means that the driver has STAGE_UNSTAGE_VOLUME and the volume is not inline.
	Stage bool `json:"stage,omitempty"`
}

// Mount is the record of one pod's mount of a volume.
type Mount struct {
	Fact
	MountSpec
	// Revision identifies the content published last; "" for kinds whose content
	// csi-volmgr does not write.
	Revision string `json:"revision,omitempty"`
	// RevisionAt is when Revision was published; zero if there is no Revision, or if an
	// older version published it.
	RevisionAt time.Time `json:"revisionAt,omitzero"`
	// Seen is what the kernel showed at Target when Publish succeeded.
	Seen Seen `json:"seen,omitzero"`
	// Waits means that the volume was due to grow when it was published, and that the pod
	// must not get it until it has grown or cannot grow.
	Waits bool `json:"waits,omitempty"`
	// RenewAt is when to publish again with what Renewal asks for; zero means never.
	RenewAt time.Time `json:"renewAt,omitzero"`
	// NoEffect counts the Publish calls that the driver answered OK although the kernel
	// showed no mount. A driver may count each of them as a publication, so each is
	// undone by an Unpublish of its own.
	NoEffect int `json:"noEffect,omitempty"`
	// GroupFailed says which files could not be given to FSGroup, when Publish succeeded
	// otherwise ([Partly]); "" if all were.
	GroupFailed string `json:"groupFailed,omitempty"`
}

// MountSpec is what Publish says about one pod's use of a volume; fixed until the mount
// is absent.
type MountSpec struct {
	Pod Pod `json:"pod"`
	// Names are the pod's own names for the volume, sorted: more than one if several
	// entries of the pod's spec name the same claim.
	Names []string `json:"names"`
	// Target is the path given to Publish.
	Target string `json:"target"`
	// DevicePath is the pod's symlink to the device of a raw block volume
	// (pods/<uid>/volumeDevices/...); "" for other volumes.
	DevicePath string `json:"devicePath,omitempty"`
	// HostPath is where a container runtime finds the volume if that is not Target: the
	// path of a hostPath volume; otherwise "".
	HostPath string `json:"hostPath,omitempty"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	// FSGroup is the pod's securityContext.fsGroup, or nil.
	FSGroup *int64 `json:"fsGroup,omitempty"`
	// SELinuxLabel is the label with which the pod wants the volume mounted; "" if the
	// container runtime labels the files.
	SELinuxLabel string `json:"seLinuxLabel,omitempty"`
	// Ownership says whether and how the node gives the files of a CSI volume to FSGroup
	// after it has published the volume, unless the driver does that itself.
	Ownership Ownership `json:"ownership,omitempty"`
	// Context holds what the publish call adds to the volume context for this pod
	// (csi.storage.k8s.io/pod.name and the like). It has no token and no secret.
	Context map[string]string `json:"context,omitempty"`
	// Renewal is what the driver wants afresh with every publish call. It is not fixed:
	// each call sends what the driver wants at that time.
	Renewal Renewal `json:"renewal,omitzero"`
}

// Renewal is what a CSI driver wants with a publish call that differs from call to call.
// It never holds a token itself.
type Renewal struct {
	// Tokens lists the tokens to request for the pod's service account.
	Tokens []TokenRequest `json:"tokens,omitempty"`
	// InSecrets means that the tokens go into the call's secrets and not into its volume
	// context.
	InSecrets bool `json:"inSecrets,omitempty"`
	// Republish means that the call is repeated periodically while the volume is mounted
	// (requiresRepublish).
	Republish bool `json:"republish,omitempty"`
}

// TokenRequest asks for a token of a pod's service account.
type TokenRequest struct {
	// Audience is "" if the issuer chooses it.
	Audience string `json:"audience,omitempty"`
	// Lifetime is 0 if the issuer chooses it.
	Lifetime time.Duration `json:"lifetime,omitempty"`
}

// Ownership is how files are given to a pod's group; "" means not at all.
type Ownership string

// The values of fsGroupChangePolicy.
const (
	// OwnAlways checks every file.
	OwnAlways Ownership = "Always"
	// OwnOnRootMismatch changes nothing if the root directory is already right.
	OwnOnRootMismatch Ownership = "OnRootMismatch"
)

// Pod identifies a pod in requests and to people.
type Pod struct {
	UID            PodUID `json:"uid"`
	Namespace      string `json:"namespace"`
	Name           string `json:"name"`
	ServiceAccount string `json:"serviceAccount,omitempty"`
}

// Mode is how a volume is presented to a pod.
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
	// Name is the PersistentVolume's name, or the pod's name for an inline volume.
	Name string `json:"name"`
	// Claim is the "namespace/name" of the claim through which the volume is used. It is
	// only shown to people.
	Claim string `json:"claim,omitempty"`
	// Ephemeral marks an inline CSI volume: published without attach and stage.
	Ephemeral bool `json:"ephemeral,omitempty"`
	// Builtin marks a kind that this process serves.
	Builtin bool `json:"builtin,omitempty"`
	// NoAttach means that the driver's CSIDriver object says attachRequired: false, so
	// ControllerPublishVolume is not called even if the driver has it. It takes effect
	// when a volume is begun; calls do not carry it.
	NoAttach bool `json:"noAttach,omitempty"`
	// Migrated marks an in-tree source that a CSI driver serves; only metrics use it.
	Migrated   bool     `json:"migrated,omitempty"`
	Mode       Mode     `json:"mode"`
	FSType     string   `json:"fsType,omitempty"`
	MountFlags []string `json:"mountFlags,omitempty"`
	// MountGroup is the group id that the driver itself gives to the volume's files
	// (VOLUME_MOUNT_GROUP), the same in stage and in every publish; "" for none. Wishes
	// have none: pkg/manager/plan chooses it from the pods' groups.
	MountGroup string `json:"mountGroup,omitempty"`
	// SELinuxLabel is the label with which the volume is mounted, the same in stage and
	// in every publish; "" for none. It is chosen like MountGroup.
	SELinuxLabel string       `json:"seLinuxLabel,omitempty"`
	AccessModes  []AccessMode `json:"accessModes,omitempty"`
	// Context is the CSI volume_context, passed on unchanged.
	Context map[string]string `json:"context,omitempty"`
	// Config is a built-in kind's own source as that kind defines it.
	Config json.RawMessage `json:"config,omitempty"`
	// PublishContext is set if a cluster attaches the volume (VolumeAttachment); if
	// csi-volmgr attaches it, the record has the context instead.
	PublishContext map[string]string `json:"publishContext,omitempty"`
	// AttachName is the name of a built-in kind's volume in status.volumesInUse and
	// status.volumesAttached of the Node if a controller of the cluster attaches it;
	// otherwise "". The name of a CSI volume follows from its id (AttachedAs). Calls do
	// not carry it.
	AttachName string `json:"attachName,omitempty"`
	// Attachment is the UID of the VolumeAttachment if a cluster attaches the volume; ""
	// if unknown. A different UID means that the volume was detached and attached in the
	// meantime, perhaps as another device. Calls do not carry it.
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

// Value returns what s points to, or the zero Spec if s is nil.
func (s *Spec) Value() Spec {
	if s == nil {
		return Spec{}
	}
	return *s
}

// AttachedAs returns the name under which Kubernetes' attach-detach controller knows the
// volume (its UniqueVolumeName); "" if no controller attaches it.
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
	// Name is the volume's name in status.volumesInUse and status.volumesAttached.
	Name string
}

// UnreadableAttachedAs is AttachedAs for a volume whose record cannot be read: any CSI
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

// MountOptions returns the volume's mount flags in their order, then its SELinux label.
// The quotes protect the commas in the label (mount(8), context=).
func (s *Spec) MountOptions() []string {
	options := slices.Clone(s.MountFlags)
	if s.SELinuxLabel == "" {
		return options
	}
	return append(options, fmt.Sprintf("context=%q", s.SELinuxLabel))
}

// Equal reports whether calls made for s and o would carry the same fields.
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

// Equal reports whether publish calls made for m and o would carry the same fields. Calls
// do not carry Names, and what Renewal brings differs each time.
func (m MountSpec) Equal(o MountSpec) bool {
	return m.Pod == o.Pod && m.Target == o.Target && m.DevicePath == o.DevicePath && m.HostPath == o.HostPath &&
		m.ReadOnly == o.ReadOnly && sameContext(m.Context, o.Context) && equalPtr(m.FSGroup, o.FSGroup) &&
		m.Ownership == o.Ownership && m.SELinuxLabel == o.SELinuxLabel
}

// sameContext reports whether two contexts are equal but for the mountPropagation: records
// of earlier versions have none, and their mounts are good for any.
func sameContext(a, b map[string]string) bool {
	const propagation = "csi-volmgr.dev/mount-propagation"
	within := func(a, b map[string]string) bool {
		for key, value := range a {
			if other, has := b[key]; key != propagation && (!has || other != value) {
				return false
			}
		}
		return true
	}
	return within(a, b) && within(b, a)
}

func equalPtr(a, b *int64) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// Clear reports whether nothing of the volume is on the host or may be there.
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

// InUse reports whether the volume still counts as in use on this node (rule 3):
// something that a node call made may be there.
func (v Volume) InUse() bool {
	return v.Stage.Phase != Absent || !v.Unmounted()
}

// Sizes is the size in bytes of what is at a path; a field is 0 if it is unknown, or if
// the size belongs to more than that path.
type Sizes struct {
	Device, FileSystem int64
}

// Seen is what the kernel shows at a path.
type Seen struct {
	// Exists means that there is something at the path. A symbolic link is not followed.
	Exists bool `json:"exists,omitempty"`
	// Mounted means that the path is the root of a mount.
	Mounted bool `json:"mounted,omitempty"`
	// MountID is the kernel's unique, never reused id of the topmost mount there (Linux
	// 6.8), or 0 if the kernel does not provide it.
	MountID uint64 `json:"mountID,omitempty"`
	// Dev is the device number of what is there, as major<<32|minor; 0 if unknown.
	Dev uint64 `json:"dev,omitempty"`
	// Layers is how many mounts are stacked at the path; 0 if it is not mounted.
	Layers int `json:"layers,omitempty"`
	// BlockDevice means that there is a block device node.
	BlockDevice bool `json:"blockDevice,omitempty"`
	// ReadOnly means that the mount or its file system is read-only.
	ReadOnly bool `json:"readOnly,omitempty"`
}
