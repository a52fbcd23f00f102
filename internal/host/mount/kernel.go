package mount

import (
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Feature is a set of abilities of the running kernel.
type Feature uint

const (
	// OpenAt2 (Linux 5.6) resolves a whole path under a rule. Without it, each element is
	// opened separately ([beneath.Walk]).
	OpenAt2 Feature = 1 << iota
	// MountTree (open_tree, mount_setattr, move_mount; Linux 5.12) prepares a bind mount
	// before it is visible. Without it, a read-only bind is writable between mount(2) and
	// its remount.
	MountTree
	// FSContext (fsopen, fsconfig, fsmount; Linux 5.2) mounts file systems by descriptor
	// and explains errors. Without it, errors are only a number.
	FSContext
	// MountRoot (statx; Linux 5.8) tells whether a path is the root of a mount. Without
	// it, the mount table is read.
	MountRoot
	// MountID (unique ids, statmount, listmount; Linux 6.8) identifies a mount for ever.
	// Without it, MountID is 0 and the mount table is read.
	MountID
	// NoSwap (tmpfs; Linux 6.4, not in user namespaces) keeps a tmpfs out of swap.
	NoSwap
)

var featureNames = [...]string{"openat2", "mount-tree", "fs-context", "mount-root", "mount-id", "tmpfs-noswap"}

// String lists the features by name, separated by commas.
func (f Feature) String() string {
	var names []string
	for i, name := range featureNames {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// Kernel operates on the mounts of this process's mount namespace. Make one with [New].
type Kernel struct {
	features Feature
	roots    []string
	lanes    *lanes  // nil: calls run in the caller's goroutine
	away     Away    // nil: calls run in lanes
	without  Feature // features removed by Without
	origins  *origins
	fuse     *fuseServers
}

// New probes the running kernel's features. roots are clean absolute directories that the
// operator trusts: their own paths may go through symbolic links, paths below them may
// not.
func New(roots ...string) *Kernel {
	k := &Kernel{
		features: probe(), lanes: &lanes{busy: make(map[lane]*pendingCall)}, origins: newOrigins(),
		fuse: new(fuseServers),
	}
	for _, root := range roots {
		k.roots = append(k.roots, filepath.Clean(root))
	}
	return k
}

// Features returns the features in use.
func (k *Kernel) Features() Feature { return k.features }

// Without returns a Kernel that does not use f, as on a kernel that lacks it.
func (k *Kernel) Without(f Feature) *Kernel {
	c := *k
	c.features &^= f
	c.without |= f
	return &c
}

func (k *Kernel) has(f Feature) bool { return k.features&f == f }

func probe() Feature {
	var f Feature
	if fd, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	}); err == nil {
		unix.Close(fd)
		f |= OpenAt2
	}
	// The call on a bad descriptor fails; a missing call gives ENOSYS, and one that a seccomp
	// filter hides gives EPERM.
	switch unix.MountSetattr(-1, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}) {
	case unix.ENOSYS, unix.EPERM:
	default:
		f |= MountTree
	}
	f |= probeTmpfs()
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, "/", unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID|unix.STATX_MNT_ID_UNIQUE, &st)
	if err == nil && st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 &&
		st.Mask&(unix.STATX_MNT_ID|unix.STATX_MNT_ID_UNIQUE) != 0 {
		f |= MountRoot
	}
	if err == nil && st.Mask&unix.STATX_MNT_ID_UNIQUE != 0 {
		if _, err := statMount(st.Mnt_id, statmountBasic); err == nil {
			f |= MountID
		}
	}
	return f
}

func probeTmpfs() Feature {
	fd, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	if unix.FsconfigSetFlag(fd, "noswap") == nil {
		return FSContext | NoSwap
	}
	return FSContext
}
