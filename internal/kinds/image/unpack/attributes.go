package unpack

import (
	"archive/tar"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// permissions are the mode bits that an entry keeps: no set-user-id and no
// set-group-id.
const permissions = 0o1777

// setAttributes sets the owner and mode of fd to those of the entry.
func (t *Tree) setAttributes(fd int, h *tar.Header) error {
	if err := unix.Fchown(fd, h.Uid, h.Gid); err != nil {
		return os.NewSyscallError("fchown", err)
	}
	return os.NewSyscallError("fchmod", unix.Fchmod(fd, uint32(h.Mode)&permissions))
}

// timeOf returns an entry's time, in seconds. On a processor of 32 bits the call has no time after 2038, which is
// the latest then.
func timeOf(h *tar.Header) unix.Timespec {
	when, err := unix.TimeToTimespec(time.Unix(max(0, h.ModTime.Unix()), 0))
	if err != nil {
		return unix.NsecToTimespec(math.MaxInt32 * 1e9)
	}
	return when
}
