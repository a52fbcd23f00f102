package mount

import (
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Feature is a set of things that the running kernel can do.
type Feature uint

const (
	// OpenAt2 (Linux 5.6) resolves a whole path under a rule. Without it each
	// element is opened by itself.
	OpenAt2 Feature = 1 << iota
	// MountTree (open_tree, mount_setattr, move_mount; Linux 5.12) prepares a
	// bind mount before it is seen. Without it a read-only bind is writable for
	// the moment between mount(2) and its remount.
	MountTree
	// FSContext (fsopen, fsconfig, fsmount; Linux 5.2) makes file systems by
	// descriptor and explains errors. Without it errors are only a number.
	FSContext
	// MountRoot (statx; Linux 5.8) tells whether a path is the root of a mount.
	// Without it the mount table is read.
	MountRoot
	// MountID (unique ids, statmount, listmount; Linux 6.8) identifies a mount
	// for ever. Without it MountID is 0 and the mount table is read.
	MountID
	// NoSwap (tmpfs; Linux 6.4, not in user namespaces) keeps a tmpfs from swap.
	NoSwap
)

var featureNames = [...]string{"openat2", "mount-tree", "fs-context", "mount-root", "mount-id", "tmpfs-noswap"}

// String lists the features by name, comma separated.
func (f Feature) String() string {
	var names []string
	for i, name := range featureNames {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// Kernel is the mounts of this process's mount namespace. Make one with [New].
type Kernel struct {
	features Feature
	roots    []string
	lanes    *lanes  // nil: calls are made at once
	away     Away    // nil: in lanes
	without  Feature // what Without took away
	origins  *origins
	fuse     *fuseServers
}

// New asks the running kernel what it can do. roots are clean absolute
// directories that the operator trusts: their own path may go through
// symbolic links, what lies below them may not.
func New(roots ...string) *Kernel {
	k := &Kernel{
		features: probe(), lanes: &lanes{busy: make(map[lane]*passage)}, origins: newOrigins(),
		fuse: new(fuseServers),
	}
	for _, root := range roots {
		k.roots = append(k.roots, filepath.Clean(root))
	}
	return k
}

// Features returns what is in use.
func (k *Kernel) Features() Feature { return k.features }

// Without returns a Kernel that does without f, as on a kernel that lacks it.
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
	// On a bad descriptor the call is refused only after it was found to exist;
	// a missing call is ENOSYS, one that a seccomp filter hides EPERM.
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
