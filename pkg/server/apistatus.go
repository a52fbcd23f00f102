package server

import (
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// VolumeStatus is one volume as it stands: what is known, what is wanted, what
// is being done, and why nothing is. It is an immutable copy.
type VolumeStatus struct {
	Volume Volume `json:"volume"`
	// Wanted lists the pods that want it, sorted.
	Wanted []state.PodUID `json:"wanted,omitempty"`
	// Call is the call in flight, with Since; zero where none is.
	Call Op `json:"call,omitzero"`
	// Since is when Call began, or when Held began.
	Since time.Time `json:"since,omitzero"`
	// Progress says how far Call is, where that is known: how many files are
	// given to a pod's group, in a sentence.
	Progress string `json:"progress,omitempty"`
	// Held says why no call is made although the volume is not as wanted.
	Held Held `json:"held,omitzero"`
	// Unmount is how far an unmount is that does not succeed; nil where there is none.
	Unmount *Climb `json:"unmount,omitempty"`
	// Quarantined: the record could not be read; the text says why. Such a
	// volume counts as in use and is not touched.
	Quarantined string `json:"quarantined,omitempty"`
	// SELinux says how the labels stand that pods ask for; nil where there is none to say.
	SELinux *SELinuxStatus `json:"seLinux,omitempty"`
	// Drift says, by path, of mounts that are there, how they are not as they were made.
	Drift map[string]string `json:"drift,omitempty"`
}

// SELinuxStatus is how the labels stand that the pods of a volume ask for.
type SELinuxStatus struct {
	// Label is what the volume is mounted with, or would be; "" for none.
	Label string `json:"label,omitempty"`
	// Applied: it is mounted so. Otherwise the runtime labels its files.
	Applied bool `json:"applied,omitempty"`
	// Conflicts lists the pods that ask for another label, sorted: where Applied
	// they wait, else they and the others take the files from each other.
	Conflicts []state.PodUID `json:"conflicts,omitempty"`
}

// PodStatus is one pod's volumes as they stand.
type PodStatus struct {
	Pod Pod `json:"pod"`
	// Listed: a source wants the pod. A pod that is not listed has left and is being cleaned up.
	Listed bool `json:"listed"`
	// Ready: every volume that the pod wants is mounted as wanted.
	Ready   bool              `json:"ready"`
	Volumes []PodVolumeStatus `json:"volumes"`
}

// PodVolumeStatus is one volume of one pod: enough to say in one line what it waits for.
type PodVolumeStatus struct {
	// Names are the pod's names for the volume.
	Names  []string         `json:"names"`
	ID     state.VolumeID   `json:"id,omitempty"`
	Driver state.DriverName `json:"driver,omitempty"`
	Claim  string           `json:"claim,omitempty"`
	Mode   state.Mode       `json:"mode,omitempty"`
	// Mounted: the pod can use it as wanted, now.
	Mounted bool `json:"mounted"`
	// Phase is the pod's mount's phase.
	Phase state.Phase `json:"phase"`
	// HostPath is where the container runtime finds it: a directory, or a device for Mode Block. "" until mounted.
	HostPath string `json:"hostPath,omitempty"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	// ContentAt is when the content that it has was published, of kinds whose
	// content is objects' (configMap, secret); zero for others.
	ContentAt time.Time `json:"contentAt,omitzero"`
	// Step is the call in flight or next to be made ("Stage"); "" when mounted as wanted.
	Step string `json:"step,omitempty"`
	// Since is when this step began or the wait for it did.
	Since time.Time `json:"since,omitzero"`
	// BlockedBy says what keeps the step from being made or from succeeding, in one sentence.
	BlockedBy string `json:"blockedBy,omitempty"`
	// Unread: it could not be resolved since an object was not read from the API server.
	Unread bool `json:"unread,omitempty"`
	// Retry is the pacing and the last failure of the step.
	Retry RetryStatus `json:"retry,omitzero"`
	// SizeBytes is the size that the node serves; 0 where unknown.
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// Drift says how the pod's mount, or the stage below it, is not as it was made.
	Drift string `json:"drift,omitempty"`
}

// DriverStatus is one driver as it stands.
type DriverStatus struct {
	Name state.DriverName `json:"name"`
	// Endpoint is its socket; "" for a built-in kind.
	Endpoint string `json:"endpoint,omitempty"`
	Version  string `json:"version,omitempty"`
	// Builtin marks a kind served in this process.
	Builtin bool `json:"builtin,omitempty"`
	// NodeID is what NodeGetInfo returned.
	NodeID string `json:"nodeID,omitempty"`
	// Topology is this node's accessible topology as the driver sees it.
	Topology map[string]string `json:"topology,omitempty"`
	// MaxVolumes is how many volumes the driver can serve on the node; 0 means no limit.
	MaxVolumes int64 `json:"maxVolumes,omitempty"`
	// Capabilities are the node capabilities by their CSI names, sorted.
	Capabilities []string `json:"capabilities,omitempty"`
	// Stage: STAGE_UNSTAGE_VOLUME.
	Stage bool `json:"stage,omitempty"`
	// Expand: EXPAND_VOLUME of the node service.
	Expand bool `json:"expand,omitempty"`
	// Attach: csi-volmgr has to call ControllerPublishVolume for it.
	Attach bool `json:"attach,omitempty"`
	// MountGroup: VOLUME_MOUNT_GROUP.
	MountGroup bool `json:"mountGroup,omitempty"`
	// Deadline is what the driver's own deadlines leave a call at most; 0 is 2
	// minutes. It is for no answer that one waits for longer.
	Deadline time.Duration `json:"deadline,omitempty"`
	// MountsTarget: after Publish the target is the root of a mount. False for
	// built-in kinds that make plain directories or nothing at all.
	MountsTarget bool `json:"mountsTarget,omitempty"`
	Up           bool `json:"up"`
	// Problem says why it is not up, or why a second registration of it was refused.
	Problem string `json:"problem,omitempty"`
	// Lacks are the programs without which no volume of a built-in kind can be
	// mounted, and that this node does not have. The server says it.
	Lacks []string `json:"lacks,omitempty"`
	// Unreached says why what the driver mounts does not appear on this node, where
	// it answered OK to a publication without effect. The server says it.
	Unreached string `json:"unreached,omitempty"`
	// Generation counts how often it came up since the daemon started.
	Generation int `json:"generation"`
	// Volumes counts the records it has on this node.
	Volumes int `json:"volumes"`
	// Calls counts its calls in flight. Limit is how many it may have now, where
	// that is another number than what the daemon begins with: fewer after it had
	// too much to do, more where many take no longer than one.
	Calls int       `json:"calls"`
	Limit int       `json:"limit,omitempty"`
	Since time.Time `json:"since,omitzero"`
}

// EndedCall is one driver call that ended, as the recorder keeps it: what was
// asked of whom, how long it took, and what came of it. It holds no secret.
type EndedCall struct {
	Volume state.VolumeID   `json:"volume"`
	Driver state.DriverName `json:"driver"`
	// Migrated: the volume's source is an in-tree plugin's, which the driver serves.
	Migrated bool      `json:"migrated,omitempty"`
	Op       plan.Kind `json:"op"`
	// Step is how an Unpublish or Unstage unmounted before the driver was called;
	// "" where it left that to the driver.
	Step state.UnmountStep `json:"step,omitempty"`
	// SizeBytes is the size that an Expand asked for.
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// Pod is set where the call was for one pod.
	Pod   state.PodUID `json:"pod,omitempty"`
	Began time.Time    `json:"began"`
	// TookNanos is how long it took, the look at the kernel included (ns).
	TookNanos time.Duration `json:"tookNanos"`
	// Code is the gRPC code's name; "" for OK, and where none was received.
	Code string `json:"code,omitempty"`
	// Error is the failure's text; "" for OK.
	Error string `json:"error,omitempty"`
	// Outcome says what the failure leaves known ("unknown", "none"); "" for OK.
	Outcome string `json:"outcome,omitempty"`
	// NoEffect: the driver answered OK, and the kernel does not show the effect
	// (ErrNoEffect).
	NoEffect bool `json:"noEffect,omitempty"`
}

// Op is one call to be made for a volume, as a value: with the volume's record
// it holds all that the call and its completion need.
type Op struct {
	Kind plan.Kind `json:"kind,omitempty"`
	// Pod is set for Publish, Republish, Expand and Unpublish.
	Pod state.PodUID `json:"pod,omitempty"`
	// Revision is the content that Publish and Republish bring.
	Revision string `json:"revision,omitempty"`
	// SizeBytes is the size that Expand asks for.
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// Step is how what Unpublish or Unstage is about is unmounted before the
	// driver is called; UnmountNormal leaves it to the driver.
	Step state.UnmountStep `json:"step,omitempty"`
}

// Held says why no call is made although the volume is not as wanted. Without
// a Reason it is as wanted, and has to be looked at again at Until, if that is
// set.
type Held struct {
	// Step is the verb that waits.
	Step plan.Kind `json:"step,omitempty"`
	// Pod is the pod whose mount it waits for, if one.
	Pod state.PodUID `json:"pod,omitempty"`
	// Reason is one sentence for a person.
	Reason string `json:"reason,omitempty"`
	// Dead: what is mounted is dead, and pods have it.
	Dead bool `json:"dead,omitempty"`
	// Until is when to look again if no event comes first; zero means that only an event helps.
	Until time.Time `json:"until,omitzero"`
	// Operator: no call and no event that is due ends it. An operator has to look.
	Operator bool `json:"operator,omitempty"`
}

// Climb is how far an unmount is that has failed, or that is made otherwise than
// normally, for people.
type Climb struct {
	Kind plan.Kind    `json:"kind"`
	Pod  state.PodUID `json:"pod,omitempty"`
	// Path is what is to be unmounted.
	Path string `json:"path"`
	// Step is what is being tried, or was tried last; "" is a normal unmount.
	Step state.UnmountStep `json:"step,omitempty"`
	// Since is when it failed first; zero where it has not.
	Since time.Time `json:"since,omitzero"`
	// Next is the harder step that comes next by policy, and At when; "" where
	// none comes by itself. At is zero while nothing failed since the daemon started.
	Next state.UnmountStep `json:"next,omitempty"`
	At   time.Time         `json:"at,omitzero"`
}
