package state

// UnmountStep is how an unmount is made. Each step loses something that the one before it
// keeps, so a volume is unmounted normally unless a policy or an operator says otherwise
// (docs/adr/0021-the-ladder-at-unmount.md).
type UnmountStep string

// The steps, from the mildest to the hardest.
const (
	// UnmountNormal fails if the mount is in use, and waits until data is written back.
	UnmountNormal UnmountStep = ""
	// UnmountForce makes requests that wait for the storage fail (MNT_FORCE), if the file
	// system can do that: NFS, CephFS, FUSE and the like. Data that was not written back
	// is lost. Open files still block the unmount.
	UnmountForce UnmountStep = "force"
	// UnmountLazy takes the mount out of the directory tree (MNT_DETACH). A process with
	// a file open goes on writing to it, and the kernel does not say for how long.
	UnmountLazy UnmountStep = "lazy"
)

// Harder reports whether s may lose more than o.
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

// String returns the step's name for people.
func (s UnmountStep) String() string {
	if s == UnmountNormal {
		return "normal"
	}
	return string(s)
}
