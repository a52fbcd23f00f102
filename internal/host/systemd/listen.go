package systemd

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	// firstPassed is the first descriptor that systemd passes (sd_listen_fds(3)).
	firstPassed = 3
	// maxPassed bounds how many descriptors are checked.
	maxPassed = 64
)

// Listener returns the socket on which systemd listens at path for process pid (LISTEN_FDS and
// LISTEN_PID, read with getenv), nil if systemd passed none. It keeps programs that start later from
// inheriting the passed descriptors. It fails if LISTEN_FDS is not a number or a descriptor is not open.
//
// The caller must close the result.
func Listener(getenv func(string) string, pid int, path string) (*os.File, error) {
	if of := getenv("LISTEN_PID"); of != strconv.Itoa(pid) {
		return nil, nil // passed to another process, or nothing was passed
	}
	n, err := strconv.Atoi(getenv("LISTEN_FDS"))
	if err != nil || n < 0 || n > maxPassed {
		return nil, fmt.Errorf("LISTEN_FDS=%s: must be a number from 0 to %d", getenv("LISTEN_FDS"), maxPassed)
	}
	found := -1
	for fd := firstPassed; fd < firstPassed+n; fd++ {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
			return nil, fmt.Errorf("descriptor %d that systemd passed: %w", fd, err)
		}
		if found < 0 && listensAt(fd, path) {
			found = fd
		}
	}
	if found < 0 {
		return nil, nil
	}
	return os.NewFile(uintptr(found), path), nil
}

// listensAt reports whether fd is a stream socket that listens at a path.
func listensAt(fd int, path string) bool {
	at, err := unix.Getsockname(fd)
	if err != nil {
		return false
	}
	name, ok := at.(*unix.SockaddrUnix)
	if !ok || name.Name != path {
		return false
	}
	listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	kind, kindErr := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	return err == nil && kindErr == nil && listens == 1 && kind == unix.SOCK_STREAM
}
