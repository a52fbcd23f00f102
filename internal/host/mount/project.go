package mount

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Requests of ioctl(2) about projects, and the flag that new files in a directory inherit
// its project (uapi linux/fs.h).
const (
	getXAttr       = 0x801c581f // FS_IOC_FSGETXATTR
	setXAttr       = 0x401c5820 // FS_IOC_FSSETXATTR
	projectInherit = 0x200      // FS_XFLAG_PROJINHERIT
)

// fsxattr is struct fsxattr.
type fsxattr struct {
	xflags, extsize, nextents, project, cowextsize uint32
	_                                              [8]byte
}

// leaveProject makes a directory, which is to be removed, accept files of any project. It
// returns false if the directory did so before, or cannot.
func leaveProject(dir int) bool {
	attr := fsxattr{}
	if ioctl(dir, getXAttr, &attr) != 0 || attr.xflags&projectInherit == 0 {
		return false
	}
	attr.xflags &^= projectInherit
	return ioctl(dir, setXAttr, &attr) == 0
}

func ioctl(fd int, request uintptr, attr *fsxattr) syscall.Errno {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(attr)))
	return errno
}
