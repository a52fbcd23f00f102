// Package kind is the table of the built-in kinds of volumes, which csi-volmgr serves
// itself: what each is called, where an object may name it, and what it can do. Rooms ask
// it by a kind's name and spell none of their own.
package kind

import "github.com/csi-volmgr/csi-volmgr/pkg/state"

// Prefix begins the name of every built-in kind, and of no CSI driver that follows the
// specification: the domain is Kubernetes' own.
const Prefix = "kubernetes.io/"

// The kinds by the names of the kubelet's plugins. Records, metrics and paths have them.
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

// Kind is one built-in kind.
type Kind struct {
	Name state.DriverName
	// Field is its source in a pod's volume and in a PersistentVolume's spec.
	Field string
	// Pod and PV: a pod's volume, a PersistentVolume may be of it.
	Pod, PV bool
	// Network: a pod's author names what it reaches over a network (--inline-allow).
	Network bool
	// Mounts: after Publish the target is a mount point, on the node and under a kubelet.
	Mounts bool
	// Stages: it is mounted on the node before it is shown to pods, and can grow.
	Stages bool
	// Grows: it can grow, although it is not staged.
	Grows bool
	// Block: it has raw block volumes.
	Block bool
	// Forced: the kernel can force its unmount.
	Forced bool
	// Kept: a kubelet keeps its volumes at the same paths, so that they can be handed over.
	Kept bool
	// Wrapped: a kubelet makes an emptyDir around its files.
	Wrapped bool
	// Labels says whether the container runtime gives its files the pod's SELinux label.
	Labels Labels
	// Context: its PersistentVolumes can be mounted with a pod's label instead (the
	// kubelet's SupportsSELinuxContextMount).
	Context bool
	// Program is what the node needs to mount it; "" for none.
	Program string
}

// Labels is when the container runtime labels a volume's files for SELinux, as the
// attributes of the kubelet's plugins have it.
type Labels int

// Files of a server, of an image or of the node itself are not the pod's to label.
const (
	LabelsNever Labels = iota
	LabelsAlways
	LabelsWritable  // unless it is mounted read-only
	LabelsSupported // as LabelsWritable, and only where the file system has labels
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
func All() []Kind { return append([]Kind(nil), table[:]...) }

// Of returns the kind of a name, and the zero Kind, which can do nothing, for another
// name: that of a CSI driver, or of a kind that this version does not know.
func Of(name state.DriverName) (Kind, bool) {
	for _, k := range table {
		if k.Name == name {
			return k, true
		}
	}
	return Kind{}, false
}

// OfField returns the kind whose source has the name.
func OfField(field string) (Kind, bool) {
	for _, k := range table {
		if k.Field == field {
			return k, true
		}
	}
	return Kind{}, false
}
