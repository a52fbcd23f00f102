package client

// RuntimeFeatures say what a container runtime supports.
type RuntimeFeatures struct {
	// RecursiveReadOnly: the runtime can also make the mounts below a mount read-only
	// (mount_setattr with AT_RECURSIVE).
	RecursiveReadOnly bool `json:"recursiveReadOnly,omitempty"`
	// MountOptions: the runtime can set noexec, nodev and nosuid on a container's mounts
	// (CRI: RuntimeFeatures.mount_options).
	MountOptions bool `json:"mountOptions,omitempty"`
	// UserNamespaces: the runtime can map the ids of mounts to a pod's user namespace (CRI:
	// RuntimeHandlerFeatures.user_namespaces).
	UserNamespaces bool `json:"userNamespaces,omitempty"`
}

// ContainerMount is one mount, or one raw block device, of a container.
type ContainerMount struct {
	// Volume is the pod's name for the volume.
	Volume string `json:"volume"`
	// HostPath is the directory, file or device on this host to mount.
	HostPath string `json:"hostPath"`
	// Image is the reference of an image whose SubPath the container runtime mounts itself;
	// HostPath is "" then.
	Image string `json:"image,omitempty"`
	// ContainerPath is the mount point in the container.
	ContainerPath string `json:"containerPath"`
	// Device: HostPath is a device; give it to the container with Permissions.
	Device bool `json:"device,omitempty"`
	// Permissions are "mrw" or "r"; "" if this is not a device.
	Permissions string `json:"permissions,omitempty"`
	// SubPath is the part of the volume that HostPath is, or the part of Image that the
	// runtime has to mount; "" for the whole volume or image.
	SubPath string `json:"subPath,omitempty"`
	// ReadOnly: the mount is read-only.
	ReadOnly bool `json:"readOnly"`
	// RecursiveReadOnly: the mounts below it are read-only, too.
	RecursiveReadOnly bool `json:"recursiveReadOnly,omitempty"`
	// Propagation is rprivate, rslave or rshared; "" for a device.
	Propagation string `json:"propagation,omitempty"`
	// MountOptions are the options among noexec, nodev and nosuid that the runtime has to
	// set on the mount, sorted. A bind mount does not inherit them from the mount at
	// HostPath.
	MountOptions []string `json:"mountOptions"`
	// MapIDs: the runtime has to map the mount's ids to the pod's user namespace.
	MapIDs bool `json:"mapIDs,omitempty"`
	// SELinuxRelabel: give the files the pod's label if SELinux is on.
	SELinuxRelabel bool `json:"selinuxRelabel,omitempty"`
}
