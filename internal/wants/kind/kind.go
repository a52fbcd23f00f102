// Package kind is the table of the built-in kinds of volumes, which csi-volmgr serves
// itself: the name of each, the objects that may name it, and what it can do. Other
// packages look kinds up here and never spell their names.
package kind

import (
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Prefix begins the name of every built-in kind. A conforming CSI driver cannot have it,
// since the domain belongs to Kubernetes.
const Prefix = "kubernetes.io/"

// The kinds, named after the kubelet's plugins. Records, metrics and paths contain these names.
const (
	CephFS      state.DriverName = Prefix + "cephfs"
	ConfigMap   state.DriverName = Prefix + "configmap"
	DownwardAPI state.DriverName = Prefix + "downward-api"
	EmptyDir    state.DriverName = Prefix + "empty-dir"
	FC          state.DriverName = Prefix + "fc"
	GlusterFS   state.DriverName = Prefix + "glusterfs"
	HostPath    state.DriverName = Prefix + "host-path"
	Image       state.DriverName = Prefix + "image"
	ISCSI       state.DriverName = Prefix + "iscsi"
	Local       state.DriverName = Prefix + "local-volume"
	NFS         state.DriverName = Prefix + "nfs"
	Projected   state.DriverName = Prefix + "projected"
	Secret      state.DriverName = Prefix + "secret"
)

// PropagationKey is the key in the context of a pod's mount that says which mountPropagation its containers
// ask for: [Bidirectional], or nothing. The kinds that bind a stage or a directory read it, and so does the
// embedded driver.
const PropagationKey = "csi-volmgr.dev/mount-propagation"

// Bidirectional is the one value of [PropagationKey].
const Bidirectional = "Bidirectional"

// Embedded is the name of the embedded CSI driver.
const Embedded state.DriverName = "local.csi-volmgr.dev"

// Kind is one built-in kind.
type Kind struct {
	Name state.DriverName
	// Field names the kind's source in a pod's volume and in a PersistentVolume's spec.
	Field string
	// Pod and PV: a pod's volume may be of this kind; a PersistentVolume may be.
	Pod, PV bool
	// Network: the pod's author chooses the network address that it reaches (--inline-allow).
	Network bool
	// Mounts: after Publish the target is a mount point, here and under a kubelet.
	Mounts bool
	// Stages: it is mounted on the node before it is published to pods, and can grow.
	Stages bool
	// Grows: it can grow, although it is not staged.
	Grows bool
	// Block: it supports raw block volumes.
	Block bool
	// Forced: the kernel can force its unmount.
	Forced bool
	// Kept: a kubelet keeps its volumes at the same paths, so that they can be handed over.
	Kept bool
	// Wrapped: a kubelet puts its files into an emptyDir.
	Wrapped bool
	// Labels says whether the container runtime gives its files the pod's SELinux label.
	Labels Labels
	// Context: its PersistentVolumes can be mounted with a pod's label instead (the
	// kubelet's SupportsSELinuxContextMount).
	Context bool
	// Program is the program that the node needs to mount it; "" for none.
	Program string
}

// Labels says when the container runtime labels a volume's files for SELinux, as the
// attributes of the kubelet's plugins do.
type Labels int

// A pod must not relabel files that belong to a server, an image or the node itself.
const (
	LabelsNever Labels = iota
	LabelsAlways
	LabelsWritable  // unless it is mounted read-only
	LabelsSupported // like LabelsWritable, if the file system supports labels
)

var table = [...]Kind{
	{Name: CephFS, Field: "cephfs", Pod: true, PV: true, Network: true, Mounts: true, Forced: true, Program: "mount.ceph"},
	{Name: ConfigMap, Field: "configMap", Pod: true, Kept: true, Wrapped: true, Labels: LabelsAlways},
	{Name: DownwardAPI, Field: "downwardAPI", Pod: true, Mounts: true, Kept: true, Wrapped: true, Labels: LabelsAlways},
	{Name: EmptyDir, Field: "emptyDir", Pod: true, Grows: true, Kept: true, Labels: LabelsAlways},
	{
		Name: FC, Field: "fc", Pod: true, PV: true, Network: true, Mounts: true, Stages: true, Block: true,
		Labels: LabelsSupported, Context: true,
	},
	{
		Name: GlusterFS, Field: "glusterfs", Pod: true, PV: true, Network: true, Mounts: true, Forced: true,
		Program: "mount.glusterfs",
	},
	{Name: HostPath, Field: "hostPath", Pod: true, PV: true, Kept: true},
	{Name: Image, Field: "image", Pod: true, Mounts: true},
	{
		Name: ISCSI, Field: "iscsi", Pod: true, PV: true, Network: true, Mounts: true, Stages: true, Block: true,
		Labels: LabelsSupported, Context: true, Program: "iscsiadm",
	},
	{Name: Local, Field: "local", PV: true, Mounts: true, Grows: true, Block: true, Kept: true, Labels: LabelsWritable},
	{
		Name: NFS, Field: "nfs", Pod: true, PV: true, Network: true, Mounts: true, Forced: true, Kept: true,
		Program: "mount.nfs",
	},
	{Name: Projected, Field: "projected", Pod: true, Mounts: true, Kept: true, Wrapped: true, Labels: LabelsAlways},
	{Name: Secret, Field: "secret", Pod: true, Mounts: true, Kept: true, Wrapped: true, Labels: LabelsAlways},
}

// All returns the kinds, sorted by name.
func All() []Kind { return slices.Clone(table[:]) }

// Of returns the kind called name. For any other name, such as that of a CSI driver or of
// a kind that this version does not know, it returns the zero Kind, which can do nothing.
func Of(name state.DriverName) (Kind, bool) {
	for _, k := range table {
		if k.Name == name {
			return k, true
		}
	}
	return Kind{}, false
}

// OfField returns the kind whose [Kind.Field] is field.
func OfField(field string) (Kind, bool) {
	for _, k := range table {
		if k.Field == field {
			return k, true
		}
	}
	return Kind{}, false
}
