package server

import (
	"context"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/audit"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/pkg/stats"
)

// Volumes is what the manager shows.
type Volumes interface {
	// Volumes lists every volume on this node, sorted by id.
	Volumes() []manager.VolumeStatus
	Volume(id state.VolumeID) (manager.VolumeStatus, bool)
	// Pods lists the pods that a source wants and those that are being cleaned up.
	Pods() []manager.PodStatus
	Drivers() []manager.DriverStatus
	// Changed returns a channel that is closed at the next change of any of these.
	Changed() <-chan struct{}
}

// Objects changes what is wanted. Errors wrap one of this package's where they
// are one of these kinds.
type Objects interface {
	// Apply makes every object of a manifest wanted, or none; of one to check, it only says why it would not.
	Apply(ctx context.Context, m Manifest) ([]Applied, error)
	// Withdraw takes back the objects that a manifest names, but for claims and snapshots,
	// which are answered as kept: it never deletes data.
	Withdraw(ctx context.Context, m Manifest) ([]Applied, error)
	// DeletePod takes a pod back: its owner's statement that its containers have stopped.
	DeletePod(ctx context.Context, namespace, name string) error
	// DeleteClaim deletes a claim and its data, or says in a note where a volume is whose
	// reclaimPolicy is Retain. It is the only way to delete data (no vanished file does),
	// and is refused while a pod uses it. It is in the audit log before it is done.
	DeleteClaim(ctx context.Context, by audit.By, d ClaimDeletion) (note string, err error)
	// DeleteSnapshot does so of a snapshot or of a group snapshot, and is refused while a claim is to be
	// made of it.
	DeleteSnapshot(ctx context.Context, by audit.By, d SnapshotDeletion) (note string, err error)
}

// ClaimDeletion says which claim is to be deleted, and why.
type ClaimDeletion struct {
	Namespace, Name string
	// Reason is the operator's own words, for the audit log; "" for none.
	Reason string
	// Data: the volume and its data go too where its reclaimPolicy is Retain.
	Data bool
}

// Containers gives a container runtime what it has to mount into them.
type Containers interface {
	// ContainerMounts lists what the container's spec asks for, and makes the
	// subPaths of it that there are not yet.
	ContainerMounts(ctx context.Context, c Container) ([]ContainerMount, error)
}

// Container names a container, and says what its runtime can do.
type Container struct {
	Namespace string `json:"-"`
	Pod       string `json:"-"`
	Name      string `json:"-"`
	// RecursiveReadOnly: the runtime can make what is mounted below a mount
	// read-only too (mount_setattr with AT_RECURSIVE).
	RecursiveReadOnly bool `json:"recursiveReadOnly,omitempty"`
	// MountOptions: the runtime gives a container's mounts noexec, nodev and nosuid where
	// it is asked to (CRI: RuntimeFeatures.mount_options).
	MountOptions bool `json:"mountOptions,omitempty"`
	// UserNamespaces: the runtime maps the ids of mounts to a pod's user namespace (CRI:
	// RuntimeHandlerFeatures.user_namespaces).
	UserNamespaces bool `json:"userNamespaces,omitempty"`
}

// ContainerMount is one mount, or raw block device, of one container.
type ContainerMount struct {
	// Volume is the pod's name for the volume.
	Volume string `json:"volume"`
	// HostPath is a directory, a file or a device of this host: what to mount.
	HostPath string `json:"hostPath"`
	// Image is the reference of an image that the container runtime has, and of
	// which it is to mount SubPath itself; HostPath is "" then.
	Image string `json:"image,omitempty"`
	// ContainerPath is where the container wants it.
	ContainerPath string `json:"containerPath"`
	// Device: it is a device; give it to the container with Permissions.
	Device bool `json:"device,omitempty"`
	// Permissions are "mrw" or "r"; "" for what is no device.
	Permissions string `json:"permissions,omitempty"`
	// SubPath is the part of the volume that HostPath is, or that of Image which
	// the runtime is to mount, its variables expanded;
	// "" where it is all of it.
	SubPath           string `json:"subPath,omitempty"`
	ReadOnly          bool   `json:"readOnly"`
	RecursiveReadOnly bool   `json:"recursiveReadOnly,omitempty"`
	// Propagation is rprivate, rslave or rshared; "" for a device.
	Propagation string `json:"propagation,omitempty"`
	// MountOptions are those of noexec, nodev and nosuid that the runtime has to give the
	// mount, sorted. A runtime that binds a path drops the options that the path's own mount has.
	MountOptions []string `json:"mountOptions"`
	// MapIDs: the runtime has to map the ids of the mount to the pod's user namespace.
	MapIDs bool `json:"mapIDs,omitempty"`
	// SELinuxRelabel: give the files the pod's label where SELinux is on.
	SELinuxRelabel bool `json:"selinuxRelabel,omitempty"`
	// Note says what is not as asked for, and why; "" where all is.
	Note string `json:"note,omitempty"`
}

// Claims shows the claims, volumes and snapshots known to this node's sources and controller.
type Claims interface {
	Claims() []ClaimStatus
	PersistentVolumes() []PVStatus
	Snapshots() []SnapshotStatus
	GroupSnapshots() []GroupSnapshotStatus
	// Changed returns a channel that is closed at the next change of any of these.
	Changed() <-chan struct{}
}

// Health shows what is wrong with the daemon's inputs.
type Health interface {
	// Problems lists what the sources could not read.
	Problems() []Problem
	// Sockets lists the registration sockets.
	Sockets() []SocketStatus
	// NotReady says, a sentence each, what has not been read since the
	// start ("source files: not read yet"). Empty means ready.
	NotReady() []string
	// Degraded says, a sentence each, what an operator has to look at although the
	// daemon does its work.
	Degraded() []string
}

// Stats shows what volumes and drivers say of themselves.
type Stats interface {
	// Stats lists, by key, how full volumes are and how they fare, and has that
	// asked for; it may wait a moment for answers.
	Stats(ctx context.Context) []stats.Status
	// LastStats lists what was said last, and asks no driver.
	LastStats() []stats.Status
}

// Manifest is YAML or JSON as a person wrote it: one or more documents.
type Manifest struct {
	// Name is the file's name, for messages; "-" is standard input.
	Name string
	Data []byte
	// Check: nothing is to be wanted by it yet, only refused where it would be.
	Check bool
}

// Applied says what became of one object of a manifest.
type Applied struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Result is created, configured, unchanged, deleted, absent or kept.
	Result string `json:"result"`
	// Note says why, where that is not plain; "" otherwise.
	Note string `json:"note,omitempty"`
}

// ClaimStatus is a PersistentVolumeClaim as it stands on this node.
type ClaimStatus struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Phase is Pending, Bound, Lost or Deleting.
	Phase string `json:"phase"`
	// Reason says why it is not bound, or not as large as asked for; "" where it is.
	Reason string `json:"reason,omitempty"`
	// Call is the controller's call in flight for it ("CreateVolume"); "" where none is.
	Call string `json:"call,omitempty"`
	// Refused: what Reason says ends only with a change of the claim, its class or its driver.
	Refused bool `json:"refused,omitempty"`
	// Volume is the PersistentVolume's name; "" until bound.
	Volume string           `json:"volume,omitempty"`
	Driver state.DriverName `json:"driver,omitempty"`
	// RequestedBytes is what the claim asks for.
	RequestedBytes int64 `json:"requestedBytes,omitempty"`
	// CapacityBytes is what the volume has; 0 where unknown.
	CapacityBytes int64 `json:"capacityBytes,omitempty"`
	// NodeBytes is what this node serves of it; 0 where unknown.
	NodeBytes int64  `json:"nodeBytes,omitempty"`
	Class     string `json:"class,omitempty"`
	// AttributesClass is the VolumeAttributesClass that the volume has; "" for none.
	AttributesClass string             `json:"currentVolumeAttributesClassName,omitempty"`
	AccessModes     []state.AccessMode `json:"accessModes,omitempty"`
	Mode            state.Mode         `json:"mode,omitempty"`
	// Retry paces the controller's calls for it and keeps the last failure.
	Retry RetryStatus `json:"retry,omitzero"`
}

// PVStatus is a PersistentVolume as it stands on this node.
type PVStatus struct {
	Name string `json:"name"`
	// Claim is "namespace/name" of the claim that has it, or had it where Status is Released; "" for none.
	Claim         string             `json:"claim,omitempty"`
	Driver        state.DriverName   `json:"driver,omitempty"`
	Handle        string             `json:"handle,omitempty"`
	CapacityBytes int64              `json:"capacityBytes,omitempty"`
	Mode          state.Mode         `json:"mode,omitempty"`
	AccessModes   []state.AccessMode `json:"accessModes,omitempty"`
	// Status is Available, Bound, Released or Failed.
	Status string `json:"status"`
}

// Problem is something that a source could not read or resolve.
type Problem struct {
	// Source is the source's name ("file", "api").
	Source string `json:"source"`
	// File is the file's path; "" where it is none.
	File string `json:"file,omitempty"`
	// Line counts from 1; 0 where unknown.
	Line int `json:"line,omitempty"`
	// Field is the field's path in its object ("spec.volumes[0].csi.driver"); "" where unknown.
	Field string `json:"field,omitempty"`
	// Object is "pod default/web"; "" where it could not be told.
	Object  string    `json:"object,omitempty"`
	Message string    `json:"message"`
	Since   time.Time `json:"since,omitzero"`
	// Code is a word for programs, where the problem has one: APIServerAway; "" for others.
	Code string `json:"code,omitempty"`
	// Consequences are what waits for the problem to end, where it is the cause of others.
	Consequences []string `json:"consequences,omitempty"`
}

// APIServerAway is the Code of the problem that the API server is away.
const APIServerAway = "APIServerAway"

// SocketStatus is one registration socket.
type SocketStatus struct {
	Path   string           `json:"path"`
	Driver state.DriverName `json:"driver,omitempty"`
	// State is what registration says of it ("registered", "refused").
	State string `json:"state"`
	// Problem says why it is not registered; "" where it is.
	Problem string `json:"problem,omitempty"`
}

// Version says which program answers.
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
	// Cluster: the daemon runs for an API server, whose cluster makes, snapshots and clones the volumes
	// of its claims.
	Cluster bool `json:"cluster,omitempty"`
}

// Object is one of those that the sources have, by its names: none of its values.
type Object struct {
	Kind      string            `json:"kind"`
	Namespace string            `json:"namespace,omitempty"`
	Name      string            `json:"name"`
	Labels    map[string]string `json:"labels,omitempty"`
	// Keys are the names of what a ConfigMap or a Secret has.
	Keys []string `json:"keys,omitempty"`
	// About says for people what it is, such as a class's provisioner.
	About string `json:"about,omitempty"`
}

// Mount is what the runtime of a pod's containers needs of one volume.
type Mount struct {
	Namespace string       `json:"namespace"`
	Pod       string       `json:"pod"`
	UID       state.PodUID `json:"uid"`
	// Name is the pod's name for the volume.
	Name string `json:"name"`
	// HostPath is a directory, or for Mode Block a device.
	HostPath string     `json:"hostPath"`
	Mode     state.Mode `json:"mode"`
	ReadOnly bool       `json:"readOnly"`
	// SpecName is the PersistentVolume's name, or the volume's name in the pod.
	SpecName string           `json:"specName"`
	Driver   state.DriverName `json:"driver"`
	// Propagation is what to give the runtime for the container's bind mount:
	// "rslave" (later mounts on the host are seen) or "rprivate"; "" for a device.
	Propagation string `json:"propagation,omitempty"`
}

// List is the answer to a list without watch.
type List[T any] struct {
	Items []T `json:"items"`
}

// Event is one line of a watched list.
type Event[T any] struct {
	// Type is "set" (new or changed), "gone", or "listed" once, without an
	// item, after the events for everything there was at the start.
	Type string `json:"type"`
	Item T      `json:"item,omitzero"`
}

// Progress is one line of a wait: the pod as it stands, and on the last line
// how the wait ended.
type Progress struct {
	Pod PodStatus `json:"pod"`
	// Known: a source wants the pod, or something of it is left here.
	Known bool `json:"known"`
	// NotReady says what the daemon has not read yet.
	NotReady []string `json:"notReady,omitempty"`
	// Unverified says why a pod whose volumes are mounted cannot rely on them now;
	// only in a wait for verified.
	Unverified string `json:"unverified,omitempty"`
	// Done: what was waited for is so.
	Done bool `json:"done,omitempty"`
	// TimedOut: it is not, and the time is over.
	TimedOut bool `json:"timedOut,omitempty"`
}

// Error is the body of every answer that is not 2xx, and an error itself.
type Error struct {
	// Message is for people, and names object and field.
	Message string `json:"error"`
	// Reason is one word for programs: notFound, invalid, conflict, forbidden,
	// tooLarge, busy or internal.
	Reason string `json:"reason"`
}
