package state

// PodWant is all that one pod wants of this node's volumes, as pkg/resolve makes it
// of a source's objects. It replaces the pod's PodWant before it.
type PodWant struct {
	Pod Pod `json:"pod"`
	// Stopped: the source says that the pod's containers have ended for good
	// (phase Succeeded or Failed). Its volumes are no longer wanted.
	Stopped bool `json:"stopped,omitempty"`
	// SupplementalGroups are those that the pod's security context names.
	SupplementalGroups []int64 `json:"supplementalGroups,omitempty"`
	// Volumes has an entry for each volume that a container of the pod uses.
	Volumes []VolumeWant `json:"volumes,omitempty"`
}

// VolumeWant is one volume of one pod, resolved or not.
type VolumeWant struct {
	// Names are the pod's names for it, sorted, at least one.
	Names []string `json:"names"`
	// Problem says why it could not be resolved, for people, naming object and
	// field; "" where it was. What the pod has under these names is then kept.
	Problem string `json:"problem,omitempty"`

	// Unread: the problem is that an object was not read from the API server.
	Unread bool `json:"unread,omitempty"`
	// Claim is the claim that the pod names, as "namespace/name", where that is the
	// problem's volume; "" for a volume without one.
	Claim string `json:"claim,omitempty"`
	// SELinux is what label the pod asks for, on a host with SELinux and of a
	// driver that can mount with one; nil elsewhere.
	SELinux *SELinuxWish `json:"seLinux,omitempty"`
	// The rest is set only where Problem is "".

	ID    VolumeID  `json:"id,omitempty"`
	Spec  Spec      `json:"spec,omitzero"`
	Mount MountSpec `json:"mount,omitzero"`
	// Revision identifies the content wanted; a change publishes again.
	Revision string `json:"revision,omitempty"`
	// Hold says what is missing before anything may be made of it ("waiting for
	// VolumeAttachment csi-1a2b"); "" where nothing is.
	Hold string `json:"hold,omitempty"`
	// Unattached says why nothing may be made of it by a driver with which csi-volmgr
	// does not attach it; "" where it need not be attached, or is.
	Unattached string `json:"unattached,omitempty"`
	// SizeBytes is the size it should have; 0 means no opinion.
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// HaveBytes is the size that a node made of it last, which a new record
	// starts from; 0 means SizeBytes.
	HaveBytes int64 `json:"haveBytes,omitempty"`
	// Grown: the keeper of the claim says that the volume has SizeBytes, here too.
	Grown bool `json:"grown,omitempty"`
	// NoGrow says why the node is not to make it larger; "" where nothing is against it.
	NoGrow string `json:"noGrow,omitempty"`
	// Topology is where the volume is, in the terms of its driver's topology:
	// alternatives, each with the values that a key may have. None is anywhere.
	Topology []map[string][]string `json:"topology,omitempty"`
	// GID is the group that the PersistentVolume asks its pods to have
	// (annotation pv.beta.kubernetes.io/gid), or nil.
	GID *int64 `json:"gid,omitempty"`
}

// Unresolved reports whether what the pod wants is not known: Problem says why.
func (w VolumeWant) Unresolved() bool { return w.Problem != "" }

// SELinuxWish is a pod's label for a volume.
type SELinuxWish struct {
	// Label is "" where the pod asks for none.
	Label string `json:"label,omitempty"`
	// Applied: the volume is mounted with it. Otherwise files are labelled by the
	// container runtime, and pods whose labels differ take them from each other.
	Applied bool `json:"applied,omitempty"`
	// Fault says why the pod has no one label for the volume; "" where it has one, or
	// asks for none. Where Applied it is the want's Problem.
	Fault SELinuxFault `json:"fault,omitempty"`
	// AccessModes are the volume's, where there is a Fault.
	AccessModes []AccessMode `json:"accessModes,omitempty"`
}

// SELinuxFault is what is wrong with the labels that a pod's containers ask for.
type SELinuxFault string

const (
	// SELinuxOptions: a container's seLinuxOptions make no label.
	SELinuxOptions SELinuxFault = "Options"
	// SELinuxContainers: its containers ask for different labels.
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
	// Hold keeps this pod's mount from being made; "" where nothing does.
	Hold string
}
