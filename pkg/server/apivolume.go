package server

import (
	"encoding/json"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Volume is the durable record of one volume on this node: all that is known,
// and all that its removal needs without any API object. It is a value; what it
// points to is never changed, only replaced. Every record has a Spec.
type Volume struct {
	ID state.VolumeID `json:"id"`
	// Spec is what the calls say about the volume. It is fixed while anything
	// of the volume is not absent, so that a repeated call repeats its request
	// (CSI 1.13, "retry must carry the same fields").
	Spec *Spec `json:"spec"`
	// Needs says which of the facts below this volume has; fixed like Spec.
	Needs Needs `json:"needs"`
	// For lists, sorted, the pods for whose sake attach or stage was begun. It
	// guards a volume that no pod has mounted yet against removal while one of
	// these pods cannot be resolved (rule 5).
	For []state.PodUID `json:"for,omitempty"`

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
	ExpandFailed *RetryStatus `json:"expand,omitempty"`
	// Mounts has an entry for every pod whose fact is not absent.
	Mounts map[state.PodUID]VolumeMount `json:"mounts,omitempty"`
}

// Needs says which steps a volume has before it can be published.
type Needs struct {
	// Attach: the driver's ControllerPublishVolume is called by csi-volmgr.
	Attach bool `json:"attach,omitempty"`
	// Stage: the driver has STAGE_UNSTAGE_VOLUME and the volume is not inline.
	Stage bool `json:"stage,omitempty"`
}

// Fact is one thing that is or is not so on the host, and how the calls that
// should change it are faring.
type Fact struct {
	Phase state.Phase `json:"phase"`
	// Failed is how the calls fare, where one has failed since the last success.
	Failed *RetryStatus `json:"retry,omitempty"`
}

// RetryStatus paces the calls for one fact and keeps what a person asks of a failure.
// The zero value means that nothing failed since the last success.
type RetryStatus struct {
	// Attempts counts calls that failed since the last success or change of direction.
	Attempts int `json:"attempts,omitempty"`
	// Since is when the first of them failed.
	Since time.Time `json:"since,omitzero"`
	// NotBefore is when the next may be made. Meaningless where Final.
	NotBefore time.Time `json:"notBefore,omitzero"`
	// Final means no further call until an event resets it (the driver came
	// back, the wish changed, the volume was staged anew).
	Final bool `json:"final,omitempty"`
	// Call is the call that failed last ("NodeStageVolume").
	Call string `json:"call,omitempty"`
	// Code is its gRPC code name ("Unavailable"), or "" where none was received.
	Code string `json:"code,omitempty"`
	// Error is its text, for people.
	Error string `json:"error,omitempty"`
	// Step is how the unmount was made that failed last, where it is one.
	Step state.UnmountStep `json:"step,omitempty"`
	// First is what failed before the driver began to answer Aborted, code and
	// text in one: the cause; Aborted only says that it goes on.
	First string `json:"first,omitempty"`
	// Unanswered: the driver said nothing, and Code is what the connection makes of that.
	Unanswered bool `json:"unanswered,omitempty"`
	// Refused: the request is wrong, and not the moment. It is repeated rarely.
	Refused bool `json:"refused,omitempty"`
	// Reason is why, where Code does not say it; "" for none that is known.
	Reason state.Reason `json:"reason,omitempty"`
	// Stray counts the files in the target that keep it from being removed
	// (CallError.Stray).
	Stray int `json:"stray,omitempty"`
}

// VolumeMount is the record of a volume as one pod has it.
type VolumeMount struct {
	Fact
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
	Ownership state.Ownership `json:"ownership,omitempty"`
	// Context holds what the publish call adds to the volume context for this
	// pod (csi.storage.k8s.io/pod.name and its like). No token, no secret.
	Context map[string]string `json:"context,omitempty"`
	// Renewal is what the driver wants anew with every publish call. It is not
	// fixed: each call is made with what the driver wants by then.
	Renewal Renewal `json:"renewal,omitzero"`
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
	Migrated   bool       `json:"migrated,omitempty"`
	Mode       state.Mode `json:"mode"`
	FSType     string     `json:"fsType,omitempty"`
	MountFlags []string   `json:"mountFlags,omitempty"`
	// MountGroup is the group id that the driver itself gives the volume's files
	// (VOLUME_MOUNT_GROUP), in stage and in every publish alike; "" for none.
	// Wishes have none: pkg/manager/plan chooses it from those of the pods.
	MountGroup string `json:"mountGroup,omitempty"`
	// SELinuxLabel is the label with which the volume is mounted, in stage and in
	// every publish alike; "" for none. Chosen as MountGroup is.
	SELinuxLabel string             `json:"seLinuxLabel,omitempty"`
	AccessModes  []state.AccessMode `json:"accessModes,omitempty"`
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

// Place is what a path below a node's root is for.
type Place struct {
	Path string `json:"path"`
	// Pod is who has a volume there; "" where the path is a stage.
	Pod state.PodUID `json:"pod,omitempty"`
	// Name is the PersistentVolume's, or that of an inline volume in its pod; ""
	// where a stage's path does not say it.
	Name string `json:"name,omitempty"`
	// Builtin: the volume is of a built-in kind.
	Builtin bool `json:"builtin,omitempty"`
	// Kind is the built-in kind's name, as "kubernetes.io/nfs"; "" of a driver's volume.
	Kind state.DriverName `json:"kind,omitempty"`
}
