package unixsocket

import (
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// EndpointPath returns the path of an endpoint's socket. An endpoint is an absolute
// path, unix:///path or unix:/path, since CSI 1.13 allows only unix sockets.
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

// Identity distinguishes a socket from one made later at the same path. The inode
// number alone does not, because file systems reuse it at once.
type Identity struct {
	dev, ino uint64
	born     unix.StatxTimestamp
	socket   bool
}

// IsSocket reports whether the identified file is a socket.
func (i Identity) IsSocket() bool { return i.socket }

// Identify returns the identity of the file at path; the zero value if there is none or
// the kernel does not report it. flags are statx(2)'s, for example AT_SYMLINK_NOFOLLOW.
// Identify prefers the birth time to ctime, which also changes with a chmod of the
// socket.
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
		born:   born,
		socket: st.Mode&unix.S_IFMT == unix.S_IFSOCK,
	}
}
