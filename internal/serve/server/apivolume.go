package server

import (
	"encoding/json"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Volume is the durable record of one volume on this node: all that is known, including
// all that its removal needs, so that no API object is needed for that. It is a value;
// what it points to is never changed, only replaced. Every record has a Spec.
type Volume struct {
	ID state.VolumeID `json:"id"`
	// Spec is what the calls say about the volume. It is fixed while any of the
	// volume's facts is not absent, so that a repeated call repeats its request (CSI
	// 1.13, "retry must carry the same fields").
	Spec *Spec `json:"spec"`
	// Needs says which of the facts below the volume has; fixed like Spec.
	Needs Needs `json:"needs"`
	// For lists, sorted, the pods that attach or stage was begun for. While one of them
	// cannot be resolved, a volume that no pod has mounted yet is not removed (rule 5).
	For []state.PodUID `json:"for,omitempty"`

	Attach Fact `json:"attach,omitzero"`
	// PublishContext is what Attach returned; it is passed to Stage and Publish.
	PublishContext map[string]string `json:"publishContext,omitempty"`
	Stage          Fact              `json:"stage,omitzero"`
	// Staged is what the kernel showed at Spec.StagePath when Stage succeeded.
	Staged Seen `json:"staged,omitzero"`
	// SizeBytes is the size that the node serves; 0 if unknown.
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// ExpandFailed paces NodeExpandVolume and keeps its last failure. Expansion is not
	// a fact: it can be repeated at any time and is never undone.
	ExpandFailed *RetryStatus `json:"expand,omitempty"`
	// Mounts has an entry for every pod whose mount is not absent.
	Mounts map[state.PodUID]VolumeMount `json:"mounts,omitempty"`
}

// Needs says which steps a volume needs before it can be published.
type Needs struct {
	// Attach: csi-volmgr calls the driver's ControllerPublishVolume.
	Attach bool `json:"attach,omitempty"`
	// Stage: the driver has STAGE_UNSTAGE_VOLUME and the volume is not inline.
	Stage bool `json:"stage,omitempty"`
}

// Fact is one thing that is or is not so on the host, and the state of the calls that
// change it.
type Fact struct {
	Phase state.Phase `json:"phase"`
	// Failed is the pacing and the last failure of those calls; nil if none failed
	// since the last success.
	Failed *RetryStatus `json:"retry,omitempty"`
}

// RetryStatus paces the calls for one fact and describes the last failure. The zero
// value means that no call failed since the last success.
type RetryStatus struct {
	// Attempts counts failed calls since the last success or change of direction.
	Attempts int `json:"attempts,omitempty"`
	// Since is when the first of them failed.
	Since time.Time `json:"since,omitzero"`
	// NotBefore is the earliest time of the next call. It has no meaning if Final.
	NotBefore time.Time `json:"notBefore,omitzero"`
	// Final means that no further call is made until an event resets it (the driver
	// came back, the wish changed, the volume was staged again).
	Final bool `json:"final,omitempty"`
	// Call is the call that failed last ("NodeStageVolume").
	Call string `json:"call,omitempty"`
	// Code is its gRPC code's name ("Unavailable"); "" if no code was received.
	Code string `json:"code,omitempty"`
	// Error is its text, for people.
	Error string `json:"error,omitempty"`
	// Step is how the failed unmount was done, if the call was one.
	Step state.UnmountStep `json:"step,omitempty"`
	// First is the failure, code and text, before the driver began to answer Aborted.
	// It is the cause; Aborted only says that the earlier call still runs.
	First string `json:"first,omitempty"`
	// Unanswered: the driver did not answer, and Code comes from the connection.
	Unanswered bool `json:"unanswered,omitempty"`
	// Refused: the request itself is wrong. It is repeated rarely.
	Refused bool `json:"refused,omitempty"`
	// Reason is the cause if Code does not say it; "" if none is known.
	Reason state.Reason `json:"reason,omitempty"`
	// Stray counts the files in the target directory that prevent its removal
	// (CallError.Stray).
	Stray int `json:"stray,omitempty"`
}

// VolumeMount is the record of one pod's use of a volume.
type VolumeMount struct {
	Fact
	Pod Pod `json:"pod"`
	// Names are the pod's names for the volume, sorted; more than one if several
	// entries of the pod's spec name the same claim.
	Names []string `json:"names"`
	// Target is the target_path of Publish.
	Target string `json:"target"`
	// DevicePath is, for a raw block volume, the pod's symlink to the device
	// (pods/<uid>/volumeDevices/...); "" otherwise.
	DevicePath string `json:"devicePath,omitempty"`
	// HostPath is where a container runtime finds the volume if that is not Target (the
	// path of a hostPath volume); "" otherwise.
	HostPath string `json:"hostPath,omitempty"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	// FSGroup is the pod's securityContext.fsGroup, or nil.
	FSGroup *int64 `json:"fsGroup,omitempty"`
	// SELinuxLabel is the label that the pod wants the volume mounted with; "" if the
	// runtime labels the files.
	SELinuxLabel string `json:"seLinuxLabel,omitempty"`
	// Ownership says whether, after Publish, the node gives the files of a CSI volume
	// to FSGroup, unless the driver does that itself.
	Ownership state.Ownership `json:"ownership,omitempty"`
	// Context holds what Publish adds to the volume context for this pod
	// (csi.storage.k8s.io/pod.name and similar keys). It never holds a token or secret.
	Context map[string]string `json:"context,omitempty"`
	// Renewal is what the driver wants to get fresh with every publish call. It is not
	// fixed: each call uses what the driver wants at that time.
	Renewal Renewal `json:"renewal,omitzero"`
	// Revision is the revision of the content last published; "" for kinds without
	// content from objects.
	Revision string `json:"revision,omitempty"`
	// RevisionAt is when that was; zero if Revision is "" or an older version published
	// it.
	RevisionAt time.Time `json:"revisionAt,omitzero"`
	// Seen is what the kernel showed at Target when Publish succeeded.
	Seen Seen `json:"seen,omitzero"`
	// Waits: the volume had to grow when it was published, and the pod must not use it
	// until it has grown or growing turns out to be impossible.
	Waits bool `json:"waits,omitempty"`
	// RenewAt is when to publish again with what Renewal says; zero means never.
	RenewAt time.Time `json:"renewAt,omitzero"`
	// NoEffect counts the Publish calls that the driver answered OK while the kernel
	// showed no mount. A driver may count each of them as a publication, so an
	// Unpublish of its own undoes each.
	NoEffect int `json:"noEffect,omitempty"`
	// GroupFailed says which files could not be given to FSGroup; "" if all were.
	GroupFailed string `json:"groupFailed,omitempty"`
}

// Renewal is what a CSI driver wants in a publish call that differs from call to call.
// It never holds a token itself.
type Renewal struct {
	// Tokens are the requested tokens of the pod's service account.
	Tokens []TokenRequest `json:"tokens,omitempty"`
	// InSecrets: the tokens go into the call's secrets, not into its volume context.
	InSecrets bool `json:"inSecrets,omitempty"`
	// Republish: the call is repeated from time to time while the volume is mounted
	// (requiresRepublish).
	Republish bool `json:"republish,omitempty"`
}

// TokenRequest asks for a token of a pod's service account.
type TokenRequest struct {
	// Audience is the token's audience; "" lets the issuer choose it.
	Audience string `json:"audience,omitempty"`
	// Lifetime is the token's lifetime; 0 lets the issuer choose it.
	Lifetime time.Duration `json:"lifetime,omitempty"`
}

// Pod names a pod for people and for requests.
type Pod struct {
	UID            state.PodUID `json:"uid"`
	Namespace      string       `json:"namespace"`
	Name           string       `json:"name"`
	ServiceAccount string       `json:"serviceAccount,omitempty"`
}

// Spec is what the calls say about a volume, without secrets.
type Spec struct {
	Driver state.DriverName `json:"driver"`
	// Handle is the CSI volume_id; "" for built-in kinds.
	Handle string `json:"handle,omitempty"`
	// Name is the PersistentVolume's name, or for an inline volume its name in the pod.
	Name string `json:"name"`
	// Claim is the "namespace/name" of the volume's claim; for people.
	Claim string `json:"claim,omitempty"`
	// Ephemeral marks an inline CSI volume, which is published without attach and
	// stage.
	Ephemeral bool `json:"ephemeral,omitempty"`
	// Builtin marks a built-in kind, which csi-volmgr serves itself.
	Builtin bool `json:"builtin,omitempty"`
	// NoAttach: the CSIDriver object says attachRequired: false, so csi-volmgr does not
	// call ControllerPublishVolume even if the driver has it. It counts when a volume
	// is begun; calls do not contain it.
	NoAttach bool `json:"noAttach,omitempty"`
	// Migrated: the volume has an in-tree source, which a CSI driver serves; for
	// metrics.
	Migrated   bool       `json:"migrated,omitempty"`
	Mode       state.Mode `json:"mode"`
	FSType     string     `json:"fsType,omitempty"`
	MountFlags []string   `json:"mountFlags,omitempty"`
	// MountGroup is the group id that the driver itself gives the volume's files
	// (VOLUME_MOUNT_GROUP), the same in stage and in every publish; "" for none. What a
	// pod wants does not contain it: pkg/manager/plan chooses it from the pods' groups.
	MountGroup string `json:"mountGroup,omitempty"`
	// SELinuxLabel is the label with which the volume is mounted, the same in stage and
	// in every publish; "" for none. It is chosen like MountGroup.
	SELinuxLabel string             `json:"seLinuxLabel,omitempty"`
	AccessModes  []state.AccessMode `json:"accessModes,omitempty"`
	// Context is the CSI volume_context, passed on unchanged.
	Context map[string]string `json:"context,omitempty"`
	// Config is a built-in kind's source, in the form that the kind defines.
	Config json.RawMessage `json:"config,omitempty"`
	// PublishContext is the VolumeAttachment's if a cluster attaches; if csi-volmgr
	// attaches, the record holds it instead.
	PublishContext map[string]string `json:"publishContext,omitempty"`
	// AttachName is the name of a built-in kind's volume in the Node's
	// status.volumesInUse and status.volumesAttached if a controller of the cluster
	// attaches it; "" otherwise. A CSI volume's name follows from its id (AttachedAs).
	// Calls do not contain it.
	AttachName string `json:"attachName,omitempty"`
	// Attachment is the UID of the VolumeAttachment if a cluster attaches; "" if
	// unknown. Another UID means that the volume was detached and attached again,
	// perhaps as another device. Calls do not contain it.
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

// Seen is what the kernel shows at a path.
type Seen struct {
	// Exists: the path exists. A symbolic link is not followed.
	Exists bool `json:"exists,omitempty"`
	// Mounted: the path is the root of a mount.
	Mounted bool `json:"mounted,omitempty"`
	// MountID is the kernel's unique, never reused id of the topmost mount there (Linux
	// 6.8); 0 if the kernel does not report it.
	MountID uint64 `json:"mountID,omitempty"`
	// Dev is the device number of the path, as major<<32|minor; 0 if unknown.
	Dev uint64 `json:"dev,omitempty"`
	// Layers is how many mounts are stacked at the path; 0 if none.
	Layers int `json:"layers,omitempty"`
	// BlockDevice: the path is a block device node.
	BlockDevice bool `json:"blockDevice,omitempty"`
	// ReadOnly: the mount or its file system is read-only.
	ReadOnly bool `json:"readOnly,omitempty"`
}

// Place says what a path below a node's root is for.
type Place struct {
	Path string `json:"path"`
	// Pod is the pod whose volume is there; "" if the path is a stage.
	Pod state.PodUID `json:"pod,omitempty"`
	// Name is the PersistentVolume's name, or an inline volume's name in its pod; "" if
	// a stage's path does not contain it.
	Name string `json:"name,omitempty"`
	// Builtin: the volume is of a built-in kind.
	Builtin bool `json:"builtin,omitempty"`
	// Kind is the built-in kind's name, such as "kubernetes.io/nfs"; "" for a driver's
	// volume.
	Kind state.DriverName `json:"kind,omitempty"`
}
