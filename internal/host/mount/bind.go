package mount

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// BindOptions are properties of a mount, as opposed to those of its file system.
type BindOptions struct {
	ReadOnly, NoSuid, NoDev, NoExec bool
	// Recursive includes the mounts below the source; the other options apply to them,
	// too.
	Recursive bool
	// Peer makes the new mount a peer of a shared source: what is mounted or unmounted
	// below one is below the other too. Otherwise it is a slave: it receives the
	// source's mounts and unmounts, and the source receives none of its own.
	Peer bool
}

// Bind makes source, a directory or file, appear at target, which must exist and be of
// the same type. It keeps the flags of the source's mount. If target is already a mount,
// it gets one more layer.
//
// With [MountTree] the mount has its options as soon as it appears; without, it is
// writable for a moment.
func (k *Kernel) Bind(source, target string, o BindOptions) error {
	return wrap(k.bind(source, target, o.change()), "bind %s to %s", source, target)
}

func (k *Kernel) bind(source, target string, c flagChange) error {
	src, err := k.openAny(source)
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	defer unix.Close(src)
	return k.bindFD(src, target, c)
}

// BindRestricted makes source appear at target like [Kernel.Bind], as a slave, with options
// of mount(8) that restrict it further. An option that would allow more than the source
// does, such as "rw" or "suid", only cancels an earlier one in the list.
func (k *Kernel) BindRestricted(source, target string, options []string) error {
	o := parseOptions(options)
	c := flagChange{set: o.set, clr: o.clr & unix.MOUNT_ATTR__ATIME}
	return wrap(k.bind(source, target, c), "bind %s to %s", source, target)
}

// bindFD binds what src refers to at target.
func (k *Kernel) bindFD(src int, target string, c flagChange) error {
	if !k.has(MountTree) {
		return k.bindOld(src, target, c)
	}
	dst, err := k.openTarget(target)
	if err != nil {
		return fmt.Errorf("target: %w", err)
	}
	defer unix.Close(dst)
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_EMPTY_PATH)
	if c.recursive {
		flags |= unix.AT_RECURSIVE
	}
	tree, err := ignoreEINTR(func() (int, error) { return unix.OpenTree(src, "", flags) })
	if err != nil {
		return os.NewSyscallError("open_tree", err)
	}
	defer unix.Close(tree)
	if err := k.changeFlags(tree, c); err != nil {
		return err
	}
	if !c.peer {
		// On a shared mount the new one becomes shared, too, and stays a slave.
		if err := setAttr(tree, unix.MountAttr{Propagation: unix.MS_SLAVE}, c.recursive); err != nil {
			return err
		}
	}
	return attach(tree, dst)
}

// attach mounts a detached mount on what dst refers to.
func attach(tree, dst int) error {
	err := unix.MoveMount(tree, "", dst, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	return os.NewSyscallError("move_mount", err)
}

// change returns the options as a flagChange.
func (o BindOptions) change() flagChange {
	return flagChange{set: o.attributes(), recursive: o.Recursive, peer: o.Peer}
}

// attributes returns the options as mount_setattr flags.
func (o BindOptions) attributes() uint64 {
	var a uint64
	for _, f := range []struct {
		on   bool
		attr uint64
	}{
		{o.ReadOnly, unix.MOUNT_ATTR_RDONLY},
		{o.NoSuid, unix.MOUNT_ATTR_NOSUID},
		{o.NoDev, unix.MOUNT_ATTR_NODEV},
		{o.NoExec, unix.MOUNT_ATTR_NOEXEC},
	} {
		if f.on {
			a |= f.attr
		}
	}
	return a
}

// allAttributes are the flags that BindOptions can set.
const allAttributes = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC

func setAttr(fd int, attr unix.MountAttr, recursive bool) error {
	flags := uint(unix.AT_EMPTY_PATH)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	return os.NewSyscallError("mount_setattr", unix.MountSetattr(fd, "", flags, &attr))
}
