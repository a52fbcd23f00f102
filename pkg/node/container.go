package node

// Container names a container and says what its runtime supports.
type Container struct {
	Namespace string
	Pod       string
	Name      string
	// RecursiveReadOnly: the runtime can also make the mounts below a mount read-only
	// (mount_setattr with AT_RECURSIVE).
	RecursiveReadOnly bool
	// MountOptions: the runtime can set noexec, nodev and nosuid on a container's
	// mounts (CRI: RuntimeFeatures.mount_options).
	MountOptions bool
	// UserNamespaces: the runtime can map the ids of mounts to a pod's user namespace
	// (CRI: RuntimeHandlerFeatures.user_namespaces).
	UserNamespaces bool
}

// ContainerMount is one mount, or one raw block device, of a container.
type ContainerMount struct {
	// Volume is the pod's name for the volume.
	Volume string
	// HostPath is the directory, file or device on this host to mount.
	HostPath string
	// Image is the reference of an image whose SubPath the container runtime mounts
	// itself; HostPath is "" then.
	Image string
	// ContainerPath is the mount point in the container.
	ContainerPath string
	// Device: HostPath is a device; give it to the container with Permissions.
	Device bool
	// Permissions are "mrw" or "r"; "" if this is not a device.
	Permissions string
	// SubPath is the part of the volume that HostPath is, or the part of Image that the
	// runtime has to mount, with variables expanded; "" for the whole volume or image.
	SubPath           string
	ReadOnly          bool
	RecursiveReadOnly bool
	// Propagation is rprivate, rslave or rshared; "" for a device.
	Propagation string
	// MountOptions are the options among noexec, nodev and nosuid that the runtime has
	// to set on the mount, sorted. A bind mount does not inherit them from the mount at
	// HostPath.
	MountOptions []string
	// MapIDs: the runtime has to map the mount's ids to the pod's user namespace.
	MapIDs bool
	// SELinuxRelabel: give the files the pod's label if SELinux is on.
	SELinuxRelabel bool
	// Note says what differs from the spec, and why; "" if nothing does.
	Note string
}
