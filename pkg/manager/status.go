package manager

import (
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// VolumeStatus is one volume as it stands: what is known, what is wanted, what
// is being done, and why nothing is. It is an immutable copy.
type VolumeStatus struct {
	Volume state.Volume `json:"volume"`
	// Wanted lists the pods that want it, sorted.
	Wanted []state.PodUID `json:"wanted,omitempty"`
	// Call is the call in flight, with Since; zero where none is.
	Call plan.Op `json:"call,omitzero"`
	// Since is when Call began, or when Held began.
	Since time.Time `json:"since,omitzero"`
	// Progress says how far Call is, where that is known: how many files are
	// given to a pod's group, in a sentence.
	Progress string `json:"progress,omitempty"`
	// Held says why no call is made although the volume is not as wanted.
	Held plan.Held `json:"held,omitzero"`
	// Unmount is how far an unmount is that does not succeed; nil where there is none.
	Unmount *plan.UnmountProgress `json:"unmount,omitempty"`
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
	Pod state.Pod `json:"pod"`
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
	// Step is the call in flight or next to be made, or Resolve; None when mounted as wanted.
	Step plan.Kind `json:"step,omitempty"`
	// Since is when this step began or the wait for it did.
	Since time.Time `json:"since,omitzero"`
	// BlockedBy says what keeps the step from being made or from succeeding, in one sentence.
	BlockedBy string `json:"blockedBy,omitempty"`
	// Code is why, for programs; "" where BlockedBy says why the pod's wish could not be resolved.
	Code plan.Code `json:"-"`
	// Unread: it could not be resolved since an object was not read from the API server.
	Unread bool `json:"unread,omitempty"`
	// Retry is the pacing and the last failure of the step.
	Retry state.Retry `json:"retry,omitzero"`
	// SizeBytes is the size that the node serves; 0 where unknown.
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// Drift says how the pod's mount, or the stage below it, is not as it was made.
	Drift string `json:"drift,omitempty"`
	// SELinux is the label that the pod asks for, as [state.VolumeWant] has it.
	SELinux *state.SELinuxWish `json:"-"`
}

// DriverStatus is one driver as it stands.
type DriverStatus struct {
	DriverInfo
	Up bool `json:"up"`
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

// MountedVolume is what the runtime of a pod's containers needs of one volume.
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
