package unixsocket

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// EndpointPath returns the path of an endpoint's socket. CSI 1.13 allows only unix
// sockets; an endpoint is an absolute path, unix:///path or unix:/path.
func EndpointPath(endpoint string) (string, error) {
	path, ok := strings.CutPrefix(endpoint, "unix://")
	if !ok {
		path = strings.TrimPrefix(endpoint, "unix:")
	}
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("endpoint %.256q: not an absolute path or unix:///path", endpoint)
	}
	return filepath.Clean(path), nil
}

// Identity tells one socket from another made later at the same path. The inode
// number alone does not: file systems give it out again at once.
type Identity struct {
	dev, ino uint64
	born     syscall.Timespec
	socket   bool
}

// IsSocket reports whether it is a socket's.
func (i Identity) IsSocket() bool { return i.socket }

// Identify returns the identity of what is at path; the zero value where nothing is
// or the kernel does not say. flags are those of statx(2): AT_SYMLINK_NOFOLLOW. The
// time of birth is preferred to ctime, which a mere chmod of the socket changes.
func Identify(path string, flags int) Identity {
	var st unix.Statx_t
	const want = unix.STATX_TYPE | unix.STATX_INO | unix.STATX_CTIME | unix.STATX_BTIME
	if unix.Statx(unix.AT_FDCWD, path, flags, want, &st) != nil {
		return Identity{}
	}
	born := st.Ctime
	if st.Mask&unix.STATX_BTIME != 0 {
		born = st.Btime
	}
	return Identity{
		dev:    unix.Mkdev(st.Dev_major, st.Dev_minor),
		ino:    st.Ino,
		born:   syscall.Timespec{Sec: born.Sec, Nsec: int64(born.Nsec)},
		socket: st.Mode&unix.S_IFMT == unix.S_IFSOCK,
	}
}
