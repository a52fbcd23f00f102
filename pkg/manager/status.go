package manager

import (
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// VolumeStatus is the status of one volume: its record, the pods that want it, its call in
// flight, or why there is none. It is an immutable copy.
type VolumeStatus struct {
	Volume state.Volume `json:"volume"`
	// Wanted lists the pods that want it, sorted.
	Wanted []state.PodUID `json:"wanted,omitempty"`
	// Call is the call in flight; zero if there is none.
	Call plan.Op `json:"call,omitzero"`
	// Since is when Call or Held began.
	Since time.Time `json:"since,omitzero"`
	// Progress says, in a sentence, how far Call is, for example how many files already
	// have the pod's group; "" if that is not known.
	Progress string `json:"progress,omitempty"`
	// Held says why no call is made although the volume is not as wanted.
	Held plan.Held `json:"held,omitzero"`
	// Unmount describes an unmount that does not succeed; nil if there is none.
	Unmount *plan.UnmountProgress `json:"unmount,omitempty"`
	// Quarantined says why the record cannot be read; "" if it can. A quarantined volume
	// counts as in use and is not touched.
	Quarantined string `json:"quarantined,omitempty"`
	// SELinux is about the SELinux labels of its pods; nil if it cannot have a label.
	SELinux *SELinuxStatus `json:"seLinux,omitempty"`
	// Drift says, by path, how existing mounts differ from how they were made.
	Drift map[string]string `json:"drift,omitempty"`

	emptied bool // the node is being emptied (DrainEmpty)
}

// SELinuxStatus says which SELinux label a volume has and which pods ask for another.
type SELinuxStatus struct {
	// Label is the label that the volume has, or would have; "" for none.
	Label string `json:"label,omitempty"`
	// Applied: the volume is mounted with the label. Otherwise the runtime labels its files.
	Applied bool `json:"applied,omitempty"`
	// Conflicts lists the pods that ask for another label, sorted. If Applied, they wait;
	// else these pods and the others relabel the files in turn.
	Conflicts []state.PodUID `json:"conflicts,omitempty"`
}

// PodStatus is the status of one pod's volumes.
type PodStatus struct {
	Pod state.Pod `json:"pod"`
	// Listed: a source lists the pod. A pod that is not listed has left and is being cleaned up.
	Listed bool `json:"listed"`
	// Ready: every volume that the pod wants is mounted as wanted.
	Ready   bool              `json:"ready"`
	Volumes []PodVolumeStatus `json:"volumes"`
}

// PodVolumeStatus is the status of one volume of one pod: enough to say in one line what the
// volume waits for.
type PodVolumeStatus struct {
	// Names are the pod's names for the volume.
	Names  []string         `json:"names"`
	ID     state.VolumeID   `json:"id,omitempty"`
	Driver state.DriverName `json:"driver,omitempty"`
	Claim  string           `json:"claim,omitempty"`
	Mode   state.Mode       `json:"mode,omitempty"`
	// Mounted: the pod can use it as wanted, now.
	Mounted bool `json:"mounted"`
	// Phase is the phase of the pod's mount.
	Phase state.Phase `json:"phase"`
	// HostPath is where the container runtime finds it: a directory, or a device for Mode Block. "" until mounted.
	HostPath string `json:"hostPath,omitempty"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	// ContentAt is when its content was published, for kinds whose content comes from
	// objects (configMap, secret); zero for others.
	ContentAt time.Time `json:"contentAt,omitzero"`
	// Step is the call in flight or the next one to make, or Resolve; None if mounted as wanted.
	Step plan.Kind `json:"step,omitempty"`
	// Since is when this step, or the wait for it, began.
	Since time.Time `json:"since,omitzero"`
	// BlockedBy says what keeps the step from being made or from succeeding, in one sentence.
	BlockedBy string `json:"blockedBy,omitempty"`
	// Code is the reason for programs; "" if BlockedBy says why the pod's wish could not be resolved.
	Code plan.Code `json:"-"`
	// Cause is BlockedBy for programs if the pod's wish could not be resolved.
	Cause state.Cause `json:"cause,omitzero"`
	// Unread: it could not be resolved because an object could not be read from the API server.
	Unread bool `json:"unread,omitempty"`
	// Retry is the pacing and the last failure of the step.
	Retry state.Retry `json:"retry,omitzero"`
	// SizeBytes is the size that the node serves; 0 if unknown.
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// Drift says how the pod's mount, or the stage below it, differs from how it was made.
	Drift string `json:"drift,omitempty"`
	// SELinux is the label that the pod asks for; see [state.VolumeWant].
	SELinux *state.SELinuxWish `json:"-"`
}

// DriverStatus is the status of one driver.
type DriverStatus struct {
	DriverInfo
	Up bool `json:"up"`
	// Problem says why it is not up, or why a second registration of it was refused.
	Problem string `json:"problem,omitempty"`
	// Lacks are the programs that a built-in kind needs for every mount and that this node
	// does not have. The server sets it.
	Lacks []string `json:"lacks,omitempty"`
	// Unreached says why the driver's mounts do not appear on this node, if it answered
	// OK to a publication without effect. The server sets it.
	Unreached string `json:"unreached,omitempty"`
	// Generation counts how often it came up since the daemon started.
	Generation int `json:"generation"`
	// Volumes counts the volumes on this node that name it.
	Volumes int `json:"volumes"`
	// Calls counts its calls in flight. Limit is how many it may have now, if that is not
	// the configured number: fewer after it reported overload, more if many calls take no
	// longer than one.
	Calls int       `json:"calls"`
	Limit int       `json:"limit,omitempty"`
	Since time.Time `json:"since,omitzero"`
}

// MountedVolume is what a container runtime needs to know of one volume.
type MountedVolume struct {
	// Name is the pod's name for the volume.
	Name string `json:"name"`
	// HostPath is a directory, or for Mode Block a device.
	HostPath string     `json:"hostPath"`
	Mode     state.Mode `json:"mode"`
	ReadOnly bool       `json:"readOnly"`
	// SpecName is the PersistentVolume's name, or the volume's name in the pod.
	SpecName string           `json:"specName"`
	Driver   state.DriverName `json:"driver"`
}
