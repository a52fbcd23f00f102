package localdriver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The supported file systems.
const (
	fsXFS   = "xfs"
	fsExt4  = "ext4"
	fsBtrfs = "btrfs"
)

// defaultFS returns the file system of a volume for which the request names none: xfs, or ext4 on a node
// that cannot make xfs.
func defaultFS() string {
	if _, err := exec.LookPath("mkfs.xfs"); err != nil {
		return fsExt4
	}
	return fsXFS
}

// The minimum sizes of the file systems, in bytes.
const (
	minXFSBytes   = 16 << 20
	minExt4Bytes  = 4 << 20
	minBtrfsBytes = 128 << 20
	// xfsSupportedBytes is the minimum of mkfs.xfs without --unsupported (see the package comment).
	xfsSupportedBytes = 300 << 20
)

// minBytes returns the minimum size of a volume with a file system. ok is false if the driver does
// not support it.
func minBytes(fsType string) (size int64, ok bool) {
	switch fsType {
	case fsXFS:
		return minXFSBytes, true
	case fsExt4:
		return minExt4Bytes, true
	case fsBtrfs:
		return minBtrfsBytes, true
	}
	return 0, false
}

// makeFS formats a device that is blank, or that an interrupted mkfs left behind. It does not
// discard, because there is nothing to discard.
func makeFS(ctx context.Context, fsType, device string, size int64) error {
	switch fsType {
	case fsXFS:
		args := []string{"-f", "-q", "-K"}
		if size < xfsSupportedBytes {
			args = append(args, "--unsupported")
		}
		return runTool(ctx, "mkfs.xfs", append(args, device)...)
	case fsExt4:
		return runTool(ctx, "mkfs.ext4", "-F", "-q", "-m", "0", "-E", "nodiscard", device)
	case fsBtrfs:
		return runTool(ctx, "mkfs.btrfs", "--force", "--quiet", "--nodiscard", device)
	}
	return fmt.Errorf("make file system %q: not one of xfs, ext4, btrfs", fsType)
}

// checkFS repairs what can be repaired safely before a mount. xfs and btrfs do that when they are
// mounted.
func checkFS(ctx context.Context, fsType, device string) error {
	if fsType != fsExt4 {
		return nil
	}
	return runFsck(ctx, "-p", device)
}

// runFsck runs e2fsck. Its exit codes 0 and 1 mean that the file system is now clean.
func runFsck(ctx context.Context, args ...string) error {
	err := runTool(ctx, "e2fsck", args...)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 {
		return nil
	}
	return err
}

// growUnmounted grows a file system to the size of its device if that is possible without mounting
// it. For ext4 this avoids the need for CAP_SYS_RESOURCE. The end of ctx does not stop resize2fs: killed while
// it moves tables, it leaves a file system that e2fsck -p does not repair.
func growUnmounted(ctx context.Context, fsType, device string) (done bool, err error) {
	if fsType != fsExt4 {
		return false, nil
	}
	if err := runFsck(ctx, "-f", "-p", device); err != nil {
		return false, err
	}
	return true, runToEnd("resize2fs", device)
}

// The ioctls that grow a mounted file system, which x/sys lacks (linux/fs/ext4/ext4.h,
// linux/fs/xfs/libxfs/xfs_fs.h, linux/btrfs.h).
const (
	ext4IocResizeFS   = 0x40086610 // _IOW('f', 16, __u64)
	xfsIocFSGeometry1 = 0x80705864 // _IOR('X', 100, struct xfs_fsop_geom_v1)
	xfsIocGrowFSData  = 0x4010586e // _IOW('X', 110, struct xfs_growfs_data)
	btrfsIocResize    = 0x50009403 // _IOW(0x94, 3, struct btrfs_ioctl_vol_args)
)

// xfsGeometry is struct xfs_fsop_geom_v1.
type xfsGeometry struct {
	Blocksize, Rtextsize, Agblocks, Agcount, Logblocks, Sectsize, Inodesize, Imaxpct uint32
	Datablocks, Rtblocks, Rtextents, Logstart                                        uint64
	UUID                                                                             [16]byte
	Sunit, Swidth                                                                    uint32
	Version                                                                          int32
	Flags, Logsectsize, Rtsectsize, Dirblocksize                                     uint32
}

// xfsGrowData is struct xfs_growfs_data.
type xfsGrowData struct {
	Newblocks uint64
	Imaxpct   uint32
	_         uint32
}

// btrfsVolArgs is struct btrfs_ioctl_vol_args.
type btrfsVolArgs struct {
	Fd   int64
	Name [4088]byte
}

// growMounted grows the file system mounted at path to size bytes, the size of its device. EPERM
// means that the process lacks a capability.
func growMounted(fsType, path string, size int64) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	switch fsType {
	case fsExt4:
		err = growExt4(dir, size)
	case fsXFS:
		err = growXFS(dir, size)
	case fsBtrfs:
		args := btrfsVolArgs{}
		copy(args.Name[:], "max")
		err = ioctl(dir, btrfsIocResize, unsafe.Pointer(&args))
	default:
		err = unix.EOPNOTSUPP
	}
	if err != nil {
		return fmt.Errorf("grow %s at %s: %w", fsType, path, err)
	}
	return nil
}

func growExt4(dir *os.File, size int64) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &st); err != nil {
		return err
	}
	blocks := uint64(size / int64(st.Bsize))
	return ioctl(dir, ext4IocResizeFS, unsafe.Pointer(&blocks))
}

func growXFS(dir *os.File, size int64) error {
	var geo xfsGeometry
	if err := ioctl(dir, xfsIocFSGeometry1, unsafe.Pointer(&geo)); err != nil {
		return err
	}
	data := xfsGrowData{Newblocks: uint64(size) / uint64(geo.Blocksize), Imaxpct: geo.Imaxpct}
	if data.Newblocks <= geo.Datablocks {
		return nil
	}
	return ioctl(dir, xfsIocGrowFSData, unsafe.Pointer(&data))
}

// The ioctls that freeze a mounted file system, after they have written it to its device, and thaw
// it (linux/fs.h). FITHAW returns EINVAL if it is not frozen.
const (
	iocFreeze = 0xc0045877 // FIFREEZE
	iocThaw   = 0xc0045878 // FITHAW
)

func ioctl(f *os.File, request uint, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), uintptr(request), uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}

// syncFS writes the dirty data of the file system mounted at path to its device.
func syncFS(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return unix.Syncfs(int(dir.Fd()))
}
