package quota

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Commands and flags of quotactl(2) (uapi linux/quota.h, linux/dqblk_xfs.h). The
// generic ones also work for xfs.
const (
	prjQuota   = 2
	getQuota   = 0x800007
	setQuota   = 0x800008
	getStateV  = 'X'<<8 + 8 // Q_XGETQSTATV
	stateV1    = 1
	prjEnforce = 1 << 5 // FS_QUOTA_PDQ_ENFD
	limitValid = 1      // QIF_BLIMITS
	// limitUnit is the unit of limits, in bytes.
	limitUnit = 1024
	// inherit makes new files in a directory part of its project
	// (FS_XFLAG_PROJINHERIT).
	inherit = 0x200

	// Requests of ioctl(2) about projects (uapi linux/fs.h). The numbers hold for all
	// of Go's architectures except mips and ppc.
	getAttributes = 0x801c581f // FS_IOC_FSGETXATTR
	setAttributes = 0x401c5820 // FS_IOC_FSSETXATTR
)

// dqblk is struct if_dqblk.
type dqblk struct {
	hardBlocks, softBlocks uint64 // limits, in units of limitUnit
	space                  uint64 // used, in bytes
	hardInodes, softInodes uint64 // limits
	inodes                 uint64 // used
	blockTime, inodeTime   uint64
	valid                  uint32
	_                      uint32
}

// stateV is struct fs_quota_statv.
type stateV struct {
	version int8
	_       uint8
	flags   uint16
	_       uint32
	_       [3][3]uint64
	_       [3]int32
	_       [4]uint16
	_       uint32
	_       [7]uint64
}

// system implements kernel by system calls.
type system struct{}

// enforced reports whether the file system of dir enforces project quotas.
func (system) enforced(dir *os.File) (bool, error) {
	s := stateV{version: stateV1}
	err := quotactl(dir, getStateV, 0, unsafe.Pointer(&s))
	if isNone(err) {
		return false, nil
	}
	if err != nil {
		return false, &os.PathError{Op: "read the quota state", Path: dir.Name(), Err: err}
	}
	return s.flags&prjEnforce != 0, nil
}

// isNone reports whether an error of quotactl(2) means that there are no quotas:
// another type of file system, quotas turned off, or a kernel before 5.14.
func isNone(err error) bool {
	for _, none := range []error{unix.ENOSYS, unix.EOPNOTSUPP, unix.ESRCH, unix.EINVAL, unix.ENOTTY} {
		if errors.Is(err, none) {
			return true
		}
	}
	return false
}

// project returns the project that new files in dir inherit, or 0 if there is none.
func (system) project(dir *os.File) (uint32, error) {
	attr, err := attributes(dir)
	if err != nil || attr.Xflags&inherit == 0 {
		return 0, err
	}
	return attr.Projid, nil
}

// setProject makes dir, and what is created in it from then on, part of a project.
func (system) setProject(dir *os.File, id uint32) error {
	attr, err := attributes(dir)
	if err != nil {
		return err
	}
	attr.Projid = id
	attr.Xflags |= inherit
	if err := ioctl(dir, setAttributes, &attr); err != nil {
		return &os.PathError{Op: "set the project", Path: dir.Name(), Err: err}
	}
	return nil
}

// quota returns whether a project uses space and has limits on the file system of dir.
func (system) quota(dir *os.File, id uint32) (account, error) {
	var q dqblk
	err := quotactl(dir, getQuota, id, unsafe.Pointer(&q))
	if isNone(err) || errors.Is(err, unix.ENOENT) {
		return account{}, nil // xfs has no entry for a project that never had files or limits
	}
	if err != nil {
		return account{}, &os.PathError{Op: fmt.Sprintf("read the quota of project %d", id), Path: dir.Name(), Err: err}
	}
	return account{
		used:    q.space > 0 || q.inodes > 0,
		limited: q.hardBlocks|q.softBlocks|q.hardInodes|q.softInodes != 0,
	}, nil
}

// setLimit sets a project's limit in bytes, rounded up to limitUnit; 0 means no limit.
func (system) setLimit(dir *os.File, id uint32, bytes int64) error {
	q := dqblk{hardBlocks: uint64((bytes + limitUnit - 1) / limitUnit), valid: limitValid}
	if err := quotactl(dir, setQuota, id, unsafe.Pointer(&q)); err != nil {
		return &os.PathError{Op: fmt.Sprintf("set the quota of project %d", id), Path: dir.Name(), Err: err}
	}
	return nil
}

func quotactl(dir *os.File, command uintptr, id uint32, arg unsafe.Pointer) error {
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, dir.Fd(), command<<8|prjQuota, uintptr(id), uintptr(arg), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// fsxattr is struct fsxattr.
type fsxattr struct {
	Xflags, Extsize, Nextents, Projid, Cowextsize uint32
	_                                             [8]byte
}

func attributes(dir *os.File) (fsxattr, error) {
	var attr fsxattr
	if err := ioctl(dir, getAttributes, &attr); err != nil {
		return attr, &os.PathError{Op: "read the project", Path: dir.Name(), Err: err}
	}
	return attr, nil
}

func ioctl(dir *os.File, request uintptr, attr *fsxattr) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), request, uintptr(unsafe.Pointer(attr))); errno != 0 {
		return errno
	}
	return nil
}
