package mount

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/diskfs"
)

// TmpfsOptions describe a file system in memory.
type TmpfsOptions struct {
	// SizeBytes limits its content; 0 means half of the memory.
	SizeBytes int64
	// Inodes limits the number of files; 0 means the kernel's default.
	Inodes int64
	// Mode is the mode of its root directory; 0 means 1777.
	Mode os.FileMode
	// NoSwap keeps its content in memory if the kernel supports that ([NoSwap]);
	// otherwise it has no effect.
	NoSwap bool
	// NoExec prevents execution of its files.
	NoExec bool
	// HugePageSize, in bytes, makes it a hugetlbfs with pages of that size, whose files
	// can only be mapped; 0 means a tmpfs.
	HugePageSize int64
}

// Tmpfs mounts a new, empty file system in memory at target, an existing directory.
// Device nodes and set-user-id bits on it have no effect.
func (k *Kernel) Tmpfs(target string, o TmpfsOptions) error {
	fsType := "tmpfs"
	if o.HugePageSize != 0 {
		fsType = "hugetlbfs"
	}
	opts := options{set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, data: k.tmpfsData(o)}
	if o.NoExec {
		opts.set |= unix.MOUNT_ATTR_NOEXEC
	}
	return wrap(k.newFilesystem(fsType, fsType, target, opts), "mount %s at %s", fsType, target)
}

func (k *Kernel) tmpfsData(o TmpfsOptions) []string {
	var data []string
	if o.SizeBytes != 0 {
		data = append(data, "size="+strconv.FormatInt(o.SizeBytes, 10))
	}
	if o.Inodes != 0 {
		data = append(data, "nr_inodes="+strconv.FormatInt(o.Inodes, 10))
	}
	if o.Mode != 0 {
		data = append(data, fmt.Sprintf("mode=%04o", unixMode(o.Mode)))
	}
	if o.HugePageSize != 0 {
		return append(data, "pagesize="+strconv.FormatInt(o.HugePageSize, 10))
	}
	if o.NoSwap && k.has(NoSwap) {
		data = append(data, "noswap")
	}
	return data
}

func unixMode(m os.FileMode) uint32 {
	mode := uint32(m.Perm())
	if m&os.ModeSetuid != 0 {
		mode |= unix.S_ISUID
	}
	if m&os.ModeSetgid != 0 {
		mode |= unix.S_ISGID
	}
	if m&os.ModeSticky != 0 {
		mode |= unix.S_ISVTX
	}
	return mode
}

// Filesystem mounts the file system on the block device source at target, an existing
// directory. source may be a link below /dev, such as those in /dev/disk/by-id. flags are
// options as mount(8) takes them, each one or more separated by commas; options meant for
// mount(8) itself are ignored.
//
// It returns [diskfs.ErrType] for a type that is not a disk file system, such as proc,
// and [diskfs.ErrOption] for an option that the type does not allow. An ext2, ext3 or ext4
// turns read-only at an error unless the options say errors=continue.
//
// It may take long, because a journal may have to be replayed. A refusal by the file
// system is a [ContextError] with the kernel's own messages, if any.
func (k *Kernel) Filesystem(source, target, fsType string, flags []string) error {
	err := CheckFilesystem(fsType, flags)
	var device string
	if err == nil {
		device, err = blockDevice(source)
	}
	if err == nil {
		o := parseOptions(flags)
		o.data = diskfs.Complete(fsType, o.data)
		err = k.newFilesystem(fsType, device, target, o)
	}
	return wrap(err, "mount %s (%s) at %s", source, fsType, target)
}

// ErrOption means that an option is not allowed for a file system.
var ErrOption = diskfs.ErrOption

// CheckFilesystem returns the error with which [Kernel.Filesystem] refuses a type or an
// option, without looking at a device.
func CheckFilesystem(fsType string, flags []string) error {
	return diskfs.Check(fsType, parseOptions(flags).data)
}

func blockDevice(source string) (string, error) {
	if _, err := cleanPath(source); err != nil {
		return "", err
	}
	device, err := filepath.EvalSymlinks(source)
	if err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Stat(device, &st); err != nil {
		return "", os.NewSyscallError("stat", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return "", os.NewSyscallError("stat", unix.ENOTBLK)
	}
	return device, nil
}

func (k *Kernel) newFilesystem(fsType, source, target string, o options) error {
	return k.onTarget(target, func(dst int) error {
		if !k.has(FSContext) {
			return mountOld(source, procFD(dst), fsType, o.flagsOld(), strings.Join(o.data, ","))
		}
		c, err := openContext(fsType)
		if err != nil {
			return err
		}
		defer c.close()
		for _, option := range append(append([]string{"source=" + source}, o.super...), o.data...) {
			if err := c.set(option); err != nil {
				return err
			}
		}
		tree, err := c.mount(int(o.set))
		if err != nil {
			return err
		}
		defer unix.Close(tree)
		return attach(tree, dst)
	})
}

// onTarget calls f with a descriptor of what a mount at target would cover.
func (k *Kernel) onTarget(target string, f func(dst int) error) error {
	dst, err := k.openTarget(target)
	if err != nil {
		return err
	}
	defer unix.Close(dst)
	return f(dst)
}

// Reconfigure changes options of the file system mounted at target ("size=2g" of a tmpfs,
// "ro"), for all its mounts. Flags that belong to a mount ("nosuid") change for this
// mount only.
func (k *Kernel) Reconfigure(target string, flags []string) error {
	o := parseOptions(flags)
	err := k.onTarget(target, func(fd int) error {
		if !k.has(FSContext) {
			return reconfigureOld(fd, o)
		}
		if err := reconfigure(fd, append(o.super, o.data...)); err != nil {
			return err
		}
		return k.changeFlags(fd, flagChange{set: o.set, clr: o.clr})
	})
	return wrap(err, "reconfigure %s", target)
}

func reconfigure(fd int, options []string) error {
	c, err := unix.Fspick(fd, "", unix.FSPICK_CLOEXEC|unix.FSPICK_EMPTY_PATH)
	if err != nil {
		return os.NewSyscallError("fspick", err)
	}
	defer unix.Close(c)
	for _, option := range options {
		if err := fsContext(c).set(option); err != nil {
			return err
		}
	}
	if err := unix.FsconfigReconfigure(c); err != nil {
		return fsContext(c).explain("reconfigure", err)
	}
	return nil
}

// reconfigureOld remounts by mount(2). That also replaces the flags of the mount, so it
// passes the current ones again.
func reconfigureOld(fd int, o options) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return os.NewSyscallError("fstatfs", err)
	}
	flags := flagsOf(int64(st.Flags))&^oldFlags(o.clr) | o.flagsOld()
	return mountOld("none", procFD(fd), "", unix.MS_REMOUNT|flags, strings.Join(o.data, ","))
}
