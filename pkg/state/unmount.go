package state

// UnmountStep is how an unmount is made. Each one loses what the one before it
// keeps, so a volume is unmounted normally unless a policy or an operator says
// otherwise (docs/adr/0021-the-ladder-at-unmount.md).
type UnmountStep string

// The steps, from the mildest to the hardest.
const (
	// UnmountNormal ends nothing that is in use and waits for what is to be
	// written back.
	UnmountNormal UnmountStep = ""
	// UnmountForce fails what waits for the storage (MNT_FORCE), where its file
	// system can do that: NFS, CephFS, FUSE and their like. What was not written
	// back is lost. What has files open stays in the way.
	UnmountForce UnmountStep = "force"
	// UnmountLazy takes the mount out of the directory tree (MNT_DETACH). A process that
	// has a file open goes on writing to it, and the kernel does not say for how long.
	UnmountLazy UnmountStep = "lazy"
)

// Harder reports whether s loses more than o may.
func (s UnmountStep) Harder(o UnmountStep) bool { return s.rank() > o.rank() }

func (s UnmountStep) rank() int {
	switch s {
	case UnmountNormal:
		return 0
	case UnmountForce:
		return 1
	default:
		return 2
	}
}

// String is the step's name for people.
func (s UnmountStep) String() string {
	if s == UnmountNormal {
		return "normal"
	}
	return string(s)
}
