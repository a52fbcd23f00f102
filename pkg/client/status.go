package client

import "github.com/csi-volmgr/csi-volmgr/pkg/state"

// Version identifies the daemon that answers.
type Version struct {
	// Version is the program's version.
	Version string `json:"version"`
	// Node is the node's name.
	Node string `json:"node,omitempty"`
}

// Applied is the outcome for one object of a manifest.
type Applied struct {
	// Kind, Namespace and Name are the object's.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Result is created, configured, unchanged, deleted, absent or kept.
	Result string `json:"result"`
	// Note says why, if the result does not say it; "" otherwise.
	Note string `json:"note,omitempty"`
	// Warning says what keeps the object from having an effect; "" if nothing is known.
	Warning string `json:"warning,omitempty"`
}

// PodStatus is the state of one pod's volumes.
type PodStatus struct {
	// Pod is the pod.
	Pod Pod `json:"pod"`
	// Listed: a source wants the pod. If not, the pod has been removed and is being cleaned
	// up.
	Listed bool `json:"listed"`
	// Ready: every volume of the pod is mounted as wanted.
	Ready bool `json:"ready"`
	// Volumes are the pod's volumes.
	Volumes []PodVolumeStatus `json:"volumes"`
}

// Pod names a pod.
type Pod struct {
	// UID tells the pod from a later one of the same name.
	UID state.PodUID `json:"uid"`
	// Namespace and Name are the pod's.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// PodVolumeStatus is the state of one volume of one pod.
type PodVolumeStatus struct {
	// Names are the pod's names for the volume.
	Names []string `json:"names"`
	// ID is the volume's; "" until the volume is resolved.
	ID state.VolumeID `json:"id,omitempty"`
	// Driver is the CSI driver or built-in kind.
	Driver state.DriverName `json:"driver,omitempty"`
	// Claim is the volume's claim; "" for an inline volume.
	Claim string `json:"claim,omitempty"`
	// Mode is Filesystem or Block.
	Mode state.Mode `json:"mode,omitempty"`
	// Mounted: the pod can use the volume as wanted now.
	Mounted bool `json:"mounted"`
	// HostPath is the volume's directory, or its device if Mode is Block; "" until mounted.
	HostPath string `json:"hostPath,omitempty"`
	// Step is the call in flight or the next call ("Stage"); "" if mounted as wanted.
	Step string `json:"step,omitempty"`
	// BlockedBy says in one sentence what prevents Step from starting or succeeding.
	BlockedBy string `json:"blockedBy,omitempty"`
	// Cause is BlockedBy for programs if the volume could not be resolved.
	Cause Cause `json:"cause,omitzero"`
}

// Cause is what a claim, or a pod's volume that cannot be resolved, waits for. It is empty
// if no person is needed, or if nothing more is known.
type Cause struct {
	// Code says who has to act.
	Code state.CauseCode `json:"code,omitempty"`
	// Of names the driver, the class, or, as "namespace/name", the object that Code is
	// about; "" if Code needs none.
	Of string `json:"of,omitempty"`
}

// VolumeStatus is the state of one volume on the node.
type VolumeStatus struct {
	// Volume is the node's record of the volume.
	Volume Volume `json:"volume"`
	// Wanted lists the pods that want the volume, sorted.
	Wanted []state.PodUID `json:"wanted,omitempty"`
	// Held says why no call is made although the volume differs from what is wanted.
	Held Held `json:"held,omitzero"`
	// Quarantined says why the volume's record could not be read; "" if it could. Such a
	// volume counts as in use.
	Quarantined string `json:"quarantined,omitempty"`
}

// Volume is the node's record of a volume.
type Volume struct {
	// ID identifies the volume on the node.
	ID state.VolumeID `json:"id"`
	// Spec is what the driver's calls say of the volume.
	Spec Spec `json:"spec"`
	// SizeBytes is the size that the node serves; 0 if unknown.
	SizeBytes int64 `json:"sizeBytes,omitempty"`
}

// Spec is what the driver's calls say of a volume; empty if the record is not readable.
type Spec struct {
	// Driver is the CSI driver or built-in kind.
	Driver state.DriverName `json:"driver"`
	// Handle is the CSI volume_id; "" for built-in kinds.
	Handle string `json:"handle,omitempty"`
	// Claim is the "namespace/name" of the volume's claim; "" if it has none.
	Claim string `json:"claim,omitempty"`
}

// Held says why no call is made for a volume.
type Held struct {
	// Reason is one sentence for a person; "" if the volume is as wanted.
	Reason string `json:"reason,omitempty"`
	// Operator: no scheduled call or event ends the wait; an operator has to act.
	Operator bool `json:"operator,omitempty"`
}

// ClaimStatus is the state of a PersistentVolumeClaim on the node.
type ClaimStatus struct {
	// Namespace and Name are the claim's.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Phase is Pending, Bound, Lost or Deleting.
	Phase string `json:"phase"`
	// Reason says why the claim is not bound, or smaller than requested; "" if neither.
	Reason string `json:"reason,omitempty"`
	// Cause is Reason for programs: which object has to change.
	Cause Cause `json:"cause,omitzero"`
	// Volume is the PersistentVolume's name; "" until bound.
	Volume string `json:"volume,omitempty"`
	// Driver is the volume's driver; "" if unknown.
	Driver state.DriverName `json:"driver,omitempty"`
	// CapacityBytes is the volume's size; 0 if unknown.
	CapacityBytes int64 `json:"capacityBytes,omitempty"`
}

// DriverStatus is the state of one CSI driver or built-in kind.
type DriverStatus struct {
	// Name is the driver's.
	Name state.DriverName `json:"name"`
	// Builtin marks a built-in kind, which csi-volmgr serves itself.
	Builtin bool `json:"builtin,omitempty"`
	// Up: calls can be made.
	Up bool `json:"up"`
	// Problem says why the driver is not up, or why its second registration was refused.
	Problem string `json:"problem,omitempty"`
}

// Problem is something that a source could not read or resolve, or an object that is stuck.
type Problem struct {
	// Source is the source's name ("file", "api").
	Source string `json:"source"`
	// File is the file's path; "" if the source is not a file.
	File string `json:"file,omitempty"`
	// Line counts from 1; 0 if unknown.
	Line int `json:"line,omitempty"`
	// Object is the object ("pod default/web"); "" if unknown.
	Object string `json:"object,omitempty"`
	// Message says what is wrong, for people.
	Message string `json:"message"`
	// Code is APIServerAway if the API server cannot be reached; "" for other problems.
	Code string `json:"code,omitempty"`
}

// Explanation is one causal chain: what is wanted, how far it is, what blocks it, what
// happens next, and what a person can do.
type Explanation struct {
	// Verdict is fine, working, waiting, stuck or unknown.
	Verdict string `json:"verdict"`
	// Lines are the links of the chain.
	Lines []Line `json:"lines"`
}

// Line is one link of an explanation.
type Line struct {
	// Label says what Text is: "wanted", "because", "you can".
	Label string `json:"label"`
	// Text is for people.
	Text string `json:"text"`
}
