package server

import (
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// VolumeStatus is the state of one volume: what is known, what is wanted, the call in
// flight, or why none is made. It is an immutable copy.
type VolumeStatus struct {
	Volume Volume `json:"volume"`
	// Wanted lists the pods that want the volume, sorted.
	Wanted []state.PodUID `json:"wanted,omitempty"`
	// Call is the call in flight; zero if there is none.
	Call Op `json:"call,omitzero"`
	// Since is when Call began, or when Held began.
	Since time.Time `json:"since,omitzero"`
	// Progress describes, in a sentence, how far Call is, if known: for example how
	// many files were given to a pod's group.
	Progress string `json:"progress,omitempty"`
	// Held says why no call is made although the volume differs from what is wanted.
	Held Held `json:"held,omitzero"`
	// Unmount is the progress of an unmount that fails or takes unusual steps; nil if
	// there is none.
	Unmount *UnmountProgress `json:"unmount,omitempty"`
	// Quarantined says why the volume's record could not be read; "" if it could. Such
	// a volume counts as in use, and csi-volmgr does not touch it.
	Quarantined string `json:"quarantined,omitempty"`
	// SELinux is the state of the labels that pods request; nil if pods request none.
	SELinux *SELinuxStatus `json:"seLinux,omitempty"`
	// Drift says, by path, how an existing mount differs from how it was made.
	Drift map[string]string `json:"drift,omitempty"`
}

// SELinuxStatus is the state of the SELinux labels that the pods of a volume request.
type SELinuxStatus struct {
	// Label is the label that the volume is or would be mounted with; "" for none.
	Label string `json:"label,omitempty"`
	// Applied: the volume is mounted with Label. Otherwise the runtime labels its
	// files.
	Applied bool `json:"applied,omitempty"`
	// Conflicts lists the pods that request another label, sorted. If Applied, they
	// wait; if not, each pod's containers relabel the files that the others use.
	Conflicts []state.PodUID `json:"conflicts,omitempty"`
}

// PodStatus is the state of one pod's volumes.
type PodStatus struct {
	Pod Pod `json:"pod"`
	// Listed: a source wants the pod. If not, the pod has been removed and is being
	// cleaned up.
	Listed bool `json:"listed"`
	// Ready: every volume of the pod is mounted as wanted.
	Ready   bool              `json:"ready"`
	Volumes []PodVolumeStatus `json:"volumes"`
}

// PodVolumeStatus is the state of one volume of one pod. It suffices to say in one line
// what the volume waits for.
type PodVolumeStatus struct {
	// Names are the pod's names for the volume.
	Names  []string         `json:"names"`
	ID     state.VolumeID   `json:"id,omitempty"`
	Driver state.DriverName `json:"driver,omitempty"`
	Claim  string           `json:"claim,omitempty"`
	Mode   state.Mode       `json:"mode,omitempty"`
	// Mounted: the pod can use the volume as wanted now.
	Mounted bool `json:"mounted"`
	// Phase is the phase of the pod's mount.
	Phase state.Phase `json:"phase"`
	// HostPath is where the container runtime finds the volume: a directory, or a
	// device if Mode is Block. "" until mounted.
	HostPath string `json:"hostPath,omitempty"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	// ContentAt is when the current content was published, for kinds whose content
	// comes from objects (configMap, secret); zero for other kinds.
	ContentAt time.Time `json:"contentAt,omitzero"`
	// Step is the call in flight or the next call ("Stage"); "" if mounted as wanted.
	Step string `json:"step,omitempty"`
	// Since is when Step, or the wait for it, began.
	Since time.Time `json:"since,omitzero"`
	// BlockedBy says in one sentence what prevents Step from starting or succeeding.
	BlockedBy string `json:"blockedBy,omitempty"`
	// Cause is BlockedBy for programs if the volume could not be resolved.
	Cause Cause `json:"cause,omitzero"`
	// Unread: the volume could not be resolved because an object has not been read from
	// the API server.
	Unread bool `json:"unread,omitempty"`
	// Retry is the pacing and the last failure of Step.
	Retry RetryStatus `json:"retry,omitzero"`
	// SizeBytes is the size that the node serves; 0 if unknown.
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// Drift says how the pod's mount, or the stage below it, differs from how it was
	// made.
	Drift string `json:"drift,omitempty"`
}

// DriverStatus is the state of one driver.
type DriverStatus struct {
	Name state.DriverName `json:"name"`
	// Endpoint is the driver's socket; "" for a built-in kind.
	Endpoint string `json:"endpoint,omitempty"`
	Version  string `json:"version,omitempty"`
	// Builtin marks a built-in kind, which csi-volmgr serves itself.
	Builtin bool `json:"builtin,omitempty"`
	// NodeID is the node_id that NodeGetInfo returned.
	NodeID string `json:"nodeID,omitempty"`
	// Topology is this node's accessible_topology from NodeGetInfo.
	Topology map[string]string `json:"topology,omitempty"`
	// MaxVolumes is how many volumes the driver can serve on the node; 0 means no limit.
	MaxVolumes int64 `json:"maxVolumes,omitempty"`
	// Capabilities are the CSI names of the node service's capabilities, sorted.
	Capabilities []string `json:"capabilities,omitempty"`
	// Stage: the driver has STAGE_UNSTAGE_VOLUME.
	Stage bool `json:"stage,omitempty"`
	// Expand: the driver's node service has EXPAND_VOLUME.
	Expand bool `json:"expand,omitempty"`
	// Attach: csi-volmgr has to call the driver's ControllerPublishVolume.
	Attach bool `json:"attach,omitempty"`
	// MountGroup: the driver has VOLUME_MOUNT_GROUP.
	MountGroup bool `json:"mountGroup,omitempty"`
	// Deadline is the longest deadline of the driver's calls that change something; 0
	// means 2 minutes.
	Deadline time.Duration `json:"deadline,omitempty"`
	// MountsTarget: after Publish the target is the root of a mount. It is false for
	// built-in kinds that create plain directories or nothing at all.
	MountsTarget bool `json:"mountsTarget,omitempty"`
	Up           bool `json:"up"`
	// Problem says why the driver is not up, or why its second registration was
	// refused.
	Problem string `json:"problem,omitempty"`
	// Lacks are the programs that a built-in kind requires for every mount and that
	// this node does not have.
	Lacks []string `json:"lacks,omitempty"`
	// Unreached says why the driver's mounts do not appear on this node, if the driver
	// answered OK to a publication without effect.
	Unreached string `json:"unreached,omitempty"`
	// Generation counts how often the driver came up since the daemon started.
	Generation int `json:"generation"`
	// Volumes counts the driver's volume records on this node.
	Volumes int `json:"volumes"`
	// Calls counts the driver's calls in flight. Limit is the current maximum, if it
	// differs from the initial one: lower after the driver was overloaded, higher if
	// concurrent calls take no longer than single ones.
	Calls int       `json:"calls"`
	Limit int       `json:"limit,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// Controller is the driver's Controller service, if it has one that is known.
	Controller *ControllerStatus `json:"controller,omitempty"`
}

// ControllerStatus is the state of a driver's Controller service.
type ControllerStatus struct {
	// Endpoint is where it is, if that is not the driver's own endpoint; "" otherwise.
	Endpoint string `json:"endpoint,omitempty"`
	Up       bool   `json:"up"`
	// Problem says why it is not up.
	Problem string `json:"problem,omitempty"`
	Version string `json:"version,omitempty"`
	// Capabilities are the CSI names of the service's capabilities, sorted.
	Capabilities []string `json:"capabilities,omitempty"`
	// Generation counts how often an endpoint of its own came up since the daemon started.
	Generation int       `json:"generation,omitempty"`
	Since      time.Time `json:"since,omitzero"`
}

// EndedCall is one finished driver call as the recorder keeps it: the request, its
// duration and its outcome. It contains no secret.
type EndedCall struct {
	Volume state.VolumeID   `json:"volume"`
	Driver state.DriverName `json:"driver"`
	// Migrated: the volume has an in-tree source, which the CSI driver serves.
	Migrated bool      `json:"migrated,omitempty"`
	Op       plan.Kind `json:"op"`
	// Step is how an Unpublish or Unstage unmounted before it called the driver; "" if
	// it left the unmount to the driver.
	Step state.UnmountStep `json:"step,omitempty"`
	// SizeBytes is the size that an Expand requested.
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// Pod is set if the call was for one pod.
	Pod   state.PodUID `json:"pod,omitempty"`
	Began time.Time    `json:"began"`
	// TookNanos is the call's duration (ns), including the check of the kernel's
	// mounts.
	TookNanos time.Duration `json:"tookNanos"`
	// Code is the gRPC code's name; "" for OK or if no code was received.
	Code string `json:"code,omitempty"`
	// Error is the failure's text; "" for OK.
	Error string `json:"error,omitempty"`
	// Outcome says what is known of the effect after a failure ("unknown", "none"); ""
	// for OK.
	Outcome string `json:"outcome,omitempty"`
	// NoEffect: the driver answered OK, but the kernel does not show the effect
	// (ErrNoEffect).
	NoEffect bool `json:"noEffect,omitempty"`
}

// Op is one call for a volume, as a value. Together with the volume's record it holds
// all that the call and its completion need.
type Op struct {
	Kind plan.Kind `json:"kind,omitempty"`
	// Pod is set for Publish, Republish, Expand and Unpublish.
	Pod state.PodUID `json:"pod,omitempty"`
	// Revision is the revision of the content that Publish and Republish write.
	Revision string `json:"revision,omitempty"`
	// SizeBytes is the size that Expand requests.
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// Step is how Unpublish or Unstage unmounts before it calls the driver;
	// UnmountNormal leaves the unmount to the driver.
	Step state.UnmountStep `json:"step,omitempty"`
}

// Held says why no call is made although the volume differs from what is wanted.
// Without a Reason the volume is as wanted and, if Until is set, has to be checked
// again then.
type Held struct {
	// Step is the call that waits.
	Step plan.Kind `json:"step,omitempty"`
	// Pod is the pod whose mount the step is for, if any.
	Pod state.PodUID `json:"pod,omitempty"`
	// Reason is one sentence for a person.
	Reason string `json:"reason,omitempty"`
	// Dead: the mount is dead, and pods still have it.
	Dead bool `json:"dead,omitempty"`
	// Until is when to check again if no event comes first; zero means that only an
	// event ends the wait.
	Until time.Time `json:"until,omitzero"`
	// Operator: no scheduled call or event ends the wait; an operator has to act.
	Operator bool `json:"operator,omitempty"`
}

// UnmountProgress is the progress, for people, of an unmount that failed or that takes other than
// the normal steps.
type UnmountProgress struct {
	Kind plan.Kind    `json:"kind"`
	Pod  state.PodUID `json:"pod,omitempty"`
	// Path is the path to unmount.
	Path string `json:"path"`
	// Step is the current or latest way of unmounting; "" is a normal unmount.
	Step state.UnmountStep `json:"step,omitempty"`
	// Since is when the unmount first failed; zero if it has not.
	Since time.Time `json:"since,omitzero"`
	// Next is the harder step that policy takes next, and At is when; Next is "" if
	// policy takes none. At is zero if the unmount has not failed since the daemon
	// started.
	Next state.UnmountStep `json:"next,omitempty"`
	At   time.Time         `json:"at,omitzero"`
}
