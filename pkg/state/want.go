package state

// PodWant is all that one pod wants of this node's volumes, as internal/wants/resolve derives it
// from a source's objects. It replaces the pod's previous PodWant.
type PodWant struct {
	Pod Pod `json:"pod"`
	// Stopped means that the source says that the pod's containers have ended for good
	// (phase Succeeded or Failed). Its volumes are no longer wanted.
	Stopped bool `json:"stopped,omitempty"`
	// SupplementalGroups are the groups that the pod's security context names.
	SupplementalGroups []int64 `json:"supplementalGroups,omitempty"`
	// Volumes has an entry for each volume that a container of the pod uses.
	Volumes []VolumeWant `json:"volumes,omitempty"`
}

// VolumeWant is one volume of one pod, resolved or not.
type VolumeWant struct {
	// Names are the pod's names for it, sorted, at least one.
	Names []string `json:"names"`
	// Problem says why the volume could not be resolved, for people, naming object and
	// field; "" if it was. Until it is resolved, what the pod has under these names is
	// kept.
	Problem string `json:"problem,omitempty"`

	// Cause is Problem for programs, as far as advice depends on it.
	Cause Cause `json:"cause,omitzero"`
	// Unread means that the problem is an object that was not read from the API server.
	Unread bool `json:"unread,omitempty"`
	// Claim is the "namespace/name" of the claim that the pod names for a volume with a
	// Problem; "" for a volume without a claim.
	Claim string `json:"claim,omitempty"`
	// SELinux is the label that the pod asks for, if the host has SELinux and the driver
	// can mount with a label; otherwise nil.
	SELinux *SELinuxWish `json:"seLinux,omitempty"`
	// The rest is set only if Problem is "".

	ID    VolumeID  `json:"id,omitempty"`
	Spec  Spec      `json:"spec,omitzero"`
	Mount MountSpec `json:"mount,omitzero"`
	// Revision identifies the content wanted; when it changes, the volume is published
	// again.
	Revision string `json:"revision,omitempty"`
	// Hold says what is missing before any call is made for it ("waiting for
	// VolumeAttachment csi-1a2b"); "" if nothing is missing.
	Hold string `json:"hold,omitempty"`
	// Unattached says why no call may be made for it if csi-volmgr does not attach the
	// driver's volumes; "" if the volume is attached or need not be.
	Unattached string `json:"unattached,omitempty"`
	// SizeBytes is the size that the volume should have; 0 means unspecified.
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// HaveBytes is the last size that a node gave it, from which a new record starts; 0
	// means SizeBytes.
	HaveBytes int64 `json:"haveBytes,omitempty"`
	// Grown means that the claim's status says that the volume already has SizeBytes, on
	// this node too.
	Grown bool `json:"grown,omitempty"`
	// NoGrow says why the node must not grow it; "" if nothing forbids it.
	NoGrow string `json:"noGrow,omitempty"`
	// Topology lists where the volume is, in the terms of its driver's topology:
	// alternatives, each with the allowed values of each key. Empty means anywhere.
	Topology []map[string][]string `json:"topology,omitempty"`
	// GID is the group that the PersistentVolume wants its pods to have (annotation
	// pv.beta.kubernetes.io/gid), or nil.
	GID *int64 `json:"gid,omitempty"`
}

// Unresolved reports whether the volume could not be resolved; Problem says why.
func (w VolumeWant) Unresolved() bool { return w.Problem != "" }

// SELinuxWish is a pod's label for a volume.
type SELinuxWish struct {
	// Label is "" if the pod asks for none.
	Label string `json:"label,omitempty"`
	// Applied means that the volume is mounted with the label. Otherwise the container
	// runtime labels the files, and pods with different labels take them from each other.
	Applied bool `json:"applied,omitempty"`
	// Fault says why the pod has no single label for the volume; "" if it has one or asks
	// for none. If Applied is set, the fault is the want's Problem.
	Fault SELinuxFault `json:"fault,omitempty"`
	// AccessModes are the volume's if there is a Fault.
	AccessModes []AccessMode `json:"accessModes,omitempty"`
}

// SELinuxFault is what is wrong with the labels that a pod's containers ask for.
type SELinuxFault string

const (
	// SELinuxOptions means that a container's seLinuxOptions do not form a label.
	SELinuxOptions SELinuxFault = "Options"
	// SELinuxContainers means that the pod's containers ask for different labels.
	SELinuxContainers SELinuxFault = "Containers"
)

// Want is what all pods together want of one volume.
type Want struct {
	Spec *Spec
	Hold string
	// Unattached is [VolumeWant.Unattached].
	Unattached string
	SizeBytes  int64
	HaveBytes  int64
	Grown      bool
	NoGrow     string
	Pods       map[PodUID]WantMount
	// Topology is [VolumeWant.Topology].
	Topology []map[string][]string
}

// WantMount is what one pod wants of it.
type WantMount struct {
	MountSpec
	Revision string
	// Hold says why this pod's mount must not be made yet; "" if nothing prevents it.
	Hold string
}
