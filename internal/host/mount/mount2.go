package mount

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mountOld calls mount(2), for kernels without the calls on descriptors. It reaches what
// a descriptor refers to through /proc/self/fd.
func mountOld(source, target, fsType string, flags uintptr, data string) error {
	return os.NewSyscallError("mount", unix.Mount(source, target, fsType, flags, data))
}

// bindOld binds what src refers to at target.
func (k *Kernel) bindOld(src int, target string, c flagChange) error {
	p, err := k.place(target)
	if err != nil {
		return fmt.Errorf("target: %w", err)
	}
	defer p.close()
	dst, err := k.openTargetAt(p)
	if err != nil {
		return fmt.Errorf("target: %w", err)
	}
	defer unix.Close(dst)
	flags := uintptr(unix.MS_BIND)
	if c.recursive {
		flags |= unix.MS_REC
	}
	if err := mountOld(procFD(src), procFD(dst), "", flags, ""); err != nil {
		return err
	}
	if c.set|c.clr == 0 && c.peer {
		return nil
	}
	if err := k.restrictOld(p, c); err != nil {
		// No mount is better than one that is writable against its options.
		undo := unix.Unmount(p.proc(), unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
		return errors.Join(err, os.NewSyscallError("umount2", undo))
	}
	return nil
}

// restrictOld changes the flags and the propagation of the mount at p.
func (k *Kernel) restrictOld(p place, c flagChange) error {
	fd, err := k.openTargetAt(p)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if !c.peer {
		if err := k.enslaveOld(p, fd, c.recursive); err != nil {
			return err
		}
	}
	if c.set|c.clr == 0 {
		return nil
	}
	return k.changeFlagsOld(fd, c)
}

// enslaveOld makes the new mount fd at p a slave of its source. A mount on a shared one is
// shared, too, so that containers with its path can be its slaves.
func (k *Kernel) enslaveOld(p place, fd int, recursive bool) error {
	var rec uintptr
	if recursive {
		rec = unix.MS_REC
	}
	if err := mountOld("none", procFD(fd), "", unix.MS_SLAVE|rec, ""); err != nil {
		return err
	}
	on, err := k.groupsOf(p.dir)
	if err != nil || on.shared == "" {
		return err
	}
	return mountOld("none", procFD(fd), "", unix.MS_SHARED|rec, "")
}

func (k *Kernel) changeFlagsOld(fd int, c flagChange) error {
	f := func(fd int) error { return remountFlags(fd, oldFlags(c.set), oldFlags(c.clr)) }
	if !c.recursive {
		return f(fd)
	}
	return k.eachBelow(fd, f)
}

// eachBelow calls f with a descriptor of each mount at or below the one that fd refers
// to.
func (k *Kernel) eachBelow(fd int, f func(fd int) error) error {
	path, err := os.Readlink(procFD(fd))
	if err != nil {
		return err
	}
	entries, err := k.list(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := k.onMount(e.Path, f); err != nil {
			return fmt.Errorf("%s: %w", e.Path, err)
		}
	}
	return nil
}

// remountFlags sets and clears flags of a mount. A remount replaces all flags, so it
// passes the current ones again.
func remountFlags(fd int, set, clr uintptr) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return os.NewSyscallError("fstatfs", err)
	}
	flags := flagsOf(int64(st.Flags))&^clr | set
	return mountOld("none", procFD(fd), "", unix.MS_REMOUNT|unix.MS_BIND|flags, "")
}

// flagsOf translates statfs's ST_ flags to mount's MS_ flags.
func flagsOf(st int64) uintptr {
	var flags uintptr
	for _, f := range []struct {
		st int64
		ms uintptr
	}{
		{unix.ST_RDONLY, unix.MS_RDONLY},
		{unix.ST_NOSUID, unix.MS_NOSUID},
		{unix.ST_NODEV, unix.MS_NODEV},
		{unix.ST_NOEXEC, unix.MS_NOEXEC},
		{unix.ST_NOATIME, unix.MS_NOATIME},
		{unix.ST_NODIRATIME, unix.MS_NODIRATIME},
		{unix.ST_RELATIME, unix.MS_RELATIME},
	} {
		if st&f.st != 0 {
			flags |= f.ms
		}
	}
	return flags
}
