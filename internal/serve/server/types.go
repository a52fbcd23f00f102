package server

import (
	"context"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/stats"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Volumes reads the manager's published state.
type Volumes interface {
	// Volumes lists every volume on this node, sorted by id.
	Volumes() []manager.VolumeStatus
	Volume(id state.VolumeID) (manager.VolumeStatus, bool)
	// Pods lists the pods that a source wants and the pods that are being cleaned up.
	Pods() []manager.PodStatus
	Drivers() []manager.DriverStatus
	// Changed returns a channel that is closed at the next change of any of these.
	Changed() <-chan struct{}
}

// Objects changes the wanted objects. Its errors wrap this package's errors if they are
// of one of those kinds.
type Objects interface {
	// Apply adds or updates all objects of a manifest, or none. If m.Check is set, it
	// changes nothing and only returns the error that would refuse the manifest.
	Apply(ctx context.Context, m Manifest) ([]Applied, error)
	// Withdraw removes a manifest's objects from the wanted ones. It never deletes
	// data: claims and snapshots stay, with the result "kept".
	Withdraw(ctx context.Context, m Manifest) ([]Applied, error)
	// DeletePod removes a pod. With it, the caller states that the pod's containers
	// have stopped.
	DeletePod(ctx context.Context, namespace, name string) error
	// DeleteClaim deletes a claim and its data. If the volume's reclaimPolicy is
	// Retain, the volume stays and the note says where it is. DeleteClaim is the only
	// way to delete data (a vanished file does not), fails while a pod uses the claim,
	// and writes to the audit log before it deletes.
	DeleteClaim(ctx context.Context, by audit.By, d ClaimDeletion) (note string, err error)
	// DeleteSnapshot does the same for a snapshot or a group snapshot. It fails while a
	// claim is to be restored from it.
	DeleteSnapshot(ctx context.Context, by audit.By, d SnapshotDeletion) (note string, err error)
}

// ClaimDeletion says which claim to delete, and why.
type ClaimDeletion struct {
	Namespace, Name string
	// Reason is the operator's reason, for the audit log; may be "".
	Reason string
	// Data deletes the volume and its data even if its reclaimPolicy is Retain.
	Data bool
}

// Containers tells a container runtime what to mount into its containers.
type Containers interface {
	// ContainerMounts lists the mounts in the container's spec, and creates missing
	// subPaths.
	ContainerMounts(ctx context.Context, c Container) ([]ContainerMount, error)
	// Whole completes the mounts of a pod's volumes by what its containers ask for. It makes nothing.
	Whole(pod []Mount) []Mount
}

// Container names a container and says what its runtime supports.
type Container struct {
	Namespace string `json:"-"`
	Pod       string `json:"-"`
	Name      string `json:"-"`
	// RecursiveReadOnly: the runtime can also make the mounts below a mount read-only
	// (mount_setattr with AT_RECURSIVE).
	RecursiveReadOnly bool `json:"recursiveReadOnly,omitempty"`
	// MountOptions: the runtime can set noexec, nodev and nosuid on a container's
	// mounts (CRI: RuntimeFeatures.mount_options).
	MountOptions bool `json:"mountOptions,omitempty"`
	// UserNamespaces: the runtime can map the ids of mounts to a pod's user namespace
	// (CRI: RuntimeHandlerFeatures.user_namespaces).
	UserNamespaces bool `json:"userNamespaces,omitempty"`
}

// ContainerMount is one mount, or one raw block device, of a container.
type ContainerMount struct {
	// Volume is the pod's name for the volume.
	Volume string `json:"volume"`
	// HostPath is the directory, file or device on this host to mount.
	HostPath string `json:"hostPath"`
	// Image is the reference of an image whose SubPath the container runtime mounts
	// itself; HostPath is "" then.
	Image string `json:"image,omitempty"`
	// ContainerPath is the mount point in the container.
	ContainerPath string `json:"containerPath"`
	// Device: HostPath is a device; give it to the container with Permissions.
	Device bool `json:"device,omitempty"`
	// Permissions are "mrw" or "r"; "" if this is not a device.
	Permissions string `json:"permissions,omitempty"`
	// SubPath is the part of the volume that HostPath is, or the part of Image that the
	// runtime has to mount, with variables expanded; "" for the whole volume or image.
	SubPath           string `json:"subPath,omitempty"`
	ReadOnly          bool   `json:"readOnly"`
	RecursiveReadOnly bool   `json:"recursiveReadOnly,omitempty"`
	// Propagation is rprivate, rslave or rshared; "" for a device.
	Propagation string `json:"propagation,omitempty"`
	// MountOptions are the options among noexec, nodev and nosuid that the runtime has
	// to set on the mount, sorted. A bind mount does not inherit them from the mount at
	// HostPath.
	MountOptions []string `json:"mountOptions"`
	// MapIDs: the runtime has to map the mount's ids to the pod's user namespace.
	MapIDs bool `json:"mapIDs,omitempty"`
	// SELinuxRelabel: give the files the pod's label if SELinux is on.
	SELinuxRelabel bool `json:"selinuxRelabel,omitempty"`
	// Note says what differs from the spec, and why; "" if nothing does.
	Note string `json:"note,omitempty"`
}

// Claims reads the claims, volumes and snapshots that this node's sources and
// controller know.
type Claims interface {
	Claims() []ClaimStatus
	PersistentVolumes() []PVStatus
	Snapshots() []SnapshotStatus
	GroupSnapshots() []GroupSnapshotStatus
	// Changed returns a channel that is closed at the next change of any of these.
	Changed() <-chan struct{}
}

// Health reports what is wrong with the daemon's inputs.
type Health interface {
	// Problems lists what the sources could not read.
	Problems() []Problem
	// Sockets lists the registration sockets.
	Sockets() []SocketStatus
	// NotReady lists, as sentences, what the daemon has not read since it started
	// ("source files: not read yet"). It is empty once the daemon is ready.
	NotReady() []string
	// Blocked says why nothing new is begun although the daemon is ready ("the disk of the journal is full"); "" if
	// it is.
	Blocked() string
	// Degraded lists, as sentences, what an operator has to look at although the daemon
	// works.
	Degraded() []string
}

// Stats reads the statistics of volumes and drivers.
type Stats interface {
	// Stats lists, by key, how full and how healthy volumes are. It starts new queries
	// of the drivers and may wait a moment for their answers.
	Stats(ctx context.Context) []stats.Status
	// LastStats lists the latest answers and asks no driver.
	LastStats() []stats.Status
}

// Manifest is YAML or JSON as a person wrote it: one or more documents.
type Manifest struct {
	// Name is the file's name, for messages; "-" means standard input.
	Name string
	Data []byte
	// Check only checks the manifest and changes nothing.
	Check bool
	// SkipUnknown takes the other objects if some are of kinds that csi-volmgr does not read.
	SkipUnknown bool
}

// Applied is the outcome for one object of a manifest.
type Applied struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Result is created, configured, unchanged, deleted, absent, kept or skipped.
	Result string `json:"result"`
	// Note says why, if the result does not say it; "" otherwise.
	Note string `json:"note,omitempty"`
	// Warning says what keeps the object from having an effect; "" if nothing is known.
	Warning string `json:"warning,omitempty"`
}

// ClaimStatus is the state of a PersistentVolumeClaim on this node.
type ClaimStatus struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Pod is the pod of that namespace that the claim is made for and goes with; "" if it is not made for one.
	Pod string `json:"pod,omitempty"`
	// Phase is Pending, Bound, Lost or Deleting.
	Phase string `json:"phase"`
	// Reason says why the claim is not bound, or smaller than requested; "" if neither.
	Reason string `json:"reason,omitempty"`
	// Cause is Reason for programs: which object has to change.
	Cause Cause `json:"cause,omitzero"`
	// Call is the controller's call in flight for the claim ("CreateVolume"); "" if
	// none.
	Call string `json:"call,omitempty"`
	// Refused: only a change of the claim, its class or its driver can end what Reason
	// says.
	Refused bool `json:"refused,omitempty"`
	// Volume is the PersistentVolume's name; "" until bound.
	Volume string           `json:"volume,omitempty"`
	Driver state.DriverName `json:"driver,omitempty"`
	// RequestedBytes is the size that the claim requests.
	RequestedBytes int64 `json:"requestedBytes,omitempty"`
	// CapacityBytes is the volume's size; 0 if unknown.
	CapacityBytes int64 `json:"capacityBytes,omitempty"`
	// NodeBytes is the size that this node serves; 0 if unknown.
	NodeBytes int64  `json:"nodeBytes,omitempty"`
	Class     string `json:"class,omitempty"`
	// AttributesClass is the volume's current VolumeAttributesClass; "" if none.
	AttributesClass string             `json:"currentVolumeAttributesClassName,omitempty"`
	AccessModes     []state.AccessMode `json:"accessModes,omitempty"`
	Mode            state.Mode         `json:"mode,omitempty"`
	// ReclaimPolicy is Delete if the data goes with the claim, Retain if it stays, of the volume that the
	// claim has or would get; "" if nothing says.
	ReclaimPolicy string `json:"reclaimPolicy,omitempty"`
	// Retry paces the controller's calls for the claim and keeps the last failure.
	Retry RetryStatus `json:"retry,omitzero"`
}

// Cause is what a claim, or a pod's volume that cannot be resolved, waits for. It is empty if no
// person is needed, or if nothing more is known.
type Cause struct {
	Code state.CauseCode `json:"code,omitempty"`
	// Of names the driver, the class, or, as "namespace/name", the object that Code is
	// about; "" if Code needs none.
	Of string `json:"of,omitempty"`
}

// PVStatus is the state of a PersistentVolume on this node.
type PVStatus struct {
	Name string `json:"name"`
	// Claim is the "namespace/name" of the claim bound to the volume, or of the last
	// one if Status is Released; "" if none.
	Claim         string             `json:"claim,omitempty"`
	Driver        state.DriverName   `json:"driver,omitempty"`
	Handle        string             `json:"handle,omitempty"`
	CapacityBytes int64              `json:"capacityBytes,omitempty"`
	Mode          state.Mode         `json:"mode,omitempty"`
	AccessModes   []state.AccessMode `json:"accessModes,omitempty"`
	// ReclaimPolicy is Delete if the data goes with the claim, Retain if it stays; "" if nothing says.
	ReclaimPolicy string `json:"reclaimPolicy,omitempty"`
	// Status is Available, Bound, Released or Failed.
	Status string `json:"status"`
}

// Problem is something that a source could not read or resolve.
type Problem struct {
	// Source is the source's name ("file", "api").
	Source string `json:"source"`
	// File is the file's path; "" if the source is not a file.
	File string `json:"file,omitempty"`
	// Line counts from 1; 0 if unknown.
	Line int `json:"line,omitempty"`
	// Field is the field's path in its object ("spec.volumes[0].csi.driver"); "" if
	// unknown.
	Field string `json:"field,omitempty"`
	// Object is the object ("pod default/web"); "" if unknown.
	Object  string    `json:"object,omitempty"`
	Message string    `json:"message"`
	Since   time.Time `json:"since,omitzero"`
	// Code identifies the problem for programs: APIServerAway; "" for other problems.
	Code string `json:"code,omitempty"`
	// Consequences list what waits for this problem to end.
	Consequences []string `json:"consequences,omitempty"`
}

// APIServerAway is the Code of the problem that the API server cannot be reached.
const APIServerAway = "APIServerAway"

// SocketStatus is the state of one registration socket.
type SocketStatus struct {
	Path   string           `json:"path"`
	Driver state.DriverName `json:"driver,omitempty"`
	// Endpoint is the path of the driver's CSI socket; "" if it is not known.
	Endpoint string `json:"endpoint,omitempty"`
	// State is the state of the registration ("registered", "refused").
	State string `json:"state"`
	// Problem says why the driver is not registered; "" if it is.
	Problem string `json:"problem,omitempty"`
}

// Version identifies the daemon that answers.
type Version struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	// Node is the node's name.
	Node string `json:"node,omitempty"`
	// RootDir, StateDir and RegistrationDir are the daemon's directories.
	RootDir         string `json:"rootDir,omitempty"`
	StateDir        string `json:"stateDir,omitempty"`
	RegistrationDir string `json:"registrationDir,omitempty"`
	// Cluster: the daemon serves an API server, whose cluster creates, snapshots and
	// clones the volumes of its claims.
	Cluster bool `json:"cluster,omitempty"`
}

// Object describes one of the sources' objects, without its values.
type Object struct {
	Kind      string            `json:"kind"`
	Namespace string            `json:"namespace,omitempty"`
	Name      string            `json:"name"`
	Labels    map[string]string `json:"labels,omitempty"`
	// Keys are the keys of a ConfigMap or Secret.
	Keys []string `json:"keys,omitempty"`
	// About describes the object for people, for example a class's provisioner.
	About string `json:"about,omitempty"`
}

// Mount is one volume of a pod as its container runtime needs it.
type Mount struct {
	Namespace string       `json:"namespace"`
	Pod       string       `json:"pod"`
	UID       state.PodUID `json:"uid"`
	// Name is the pod's name for the volume.
	Name string `json:"name"`
	// HostPath is the volume's directory, or its device if Mode is Block.
	HostPath string     `json:"hostPath"`
	Mode     state.Mode `json:"mode"`
	// ReadOnly: each container that mounts it has it read-only.
	ReadOnly bool `json:"readOnly"`
	// Permissions are "mrw" or "r"; "" if this is not a device.
	Permissions string `json:"permissions,omitempty"`
	// SpecName is the PersistentVolume's name, or the volume's name in the pod.
	SpecName string           `json:"specName"`
	Driver   state.DriverName `json:"driver"`
	// Propagation is the narrowest that a container asks for: rprivate, rslave or rshared;
	// "" for a device.
	Propagation string `json:"propagation,omitempty"`
	// Note says why a program should ask for the mounts of each container instead; "" if
	// they are these.
	Note string `json:"note,omitempty"`
}

// List is the answer to a list without watch.
type List[T any] struct {
	Items []T `json:"items"`
}

// Event is one line of a watched list.
type Event[T any] struct {
	// Type is "set" (new or changed), "gone", or "listed": an event without an item,
	// sent once after the events for all initial items.
	Type string `json:"type"`
	Item T      `json:"item,omitzero"`
}

// Progress is one line of a wait: the pod's state and, on the last line, how the wait
// ended.
type Progress struct {
	Pod PodStatus `json:"pod"`
	// Known: a source wants the pod, or some of its volumes are not cleaned up yet.
	Known bool `json:"known"`
	// NotReady lists what the daemon has not read yet.
	NotReady []string `json:"notReady,omitempty"`
	// Unverified says why the pod cannot rely on its mounted volumes now; only in a
	// wait for verified.
	Unverified string `json:"unverified,omitempty"`
	// Done: the pod has reached the state that the request waits for.
	Done bool `json:"done,omitempty"`
	// TimedOut: the timeout expired first.
	TimedOut bool `json:"timedOut,omitempty"`
}

// Error is the body of every answer that is not 2xx. It is also a Go error.
type Error struct {
	// Message is for people and names the object and the field.
	Message string `json:"error"`
	// Reason is one word for programs: notFound, invalid, conflict, forbidden,
	// tooLarge, busy or internal.
	Reason string `json:"reason"`
	// Status is the status code of the answer, which the client sets.
	Status int `json:"-"`
}
