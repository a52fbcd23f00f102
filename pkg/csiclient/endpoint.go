package csiclient

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// endpointPath returns the socket's path. CSI 1.13 allows only unix sockets;
// an endpoint is an absolute path or unix:///path.
func endpointPath(endpoint string) (string, error) {
	path := endpoint
	if rest, ok := strings.CutPrefix(endpoint, "unix://"); ok {
		path = rest
	} else if rest, ok := strings.CutPrefix(endpoint, "unix:"); ok {
		path = rest
	}
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("endpoint %q: not an absolute path or unix:///path", endpoint)
	}
	return filepath.Clean(path), nil
}

// socketID tells one socket from another made later at the same path. The
// inode number alone does not: file systems hand it out again at once.
type socketID struct {
	dev, ino uint64
	born     syscall.Timespec
}

// identify returns the identity of what is at path; the zero value where
// nothing is or it cannot be told. The time of birth is preferred to ctime,
// which a mere chmod of the socket changes.
func identify(path string) socketID {
	var st unix.Statx_t
	if unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_SYNC_AS_STAT, unix.STATX_INO|unix.STATX_CTIME|unix.STATX_BTIME,
		&st) != nil {
		return socketID{}
	}
	born := st.Ctime
	if st.Mask&unix.STATX_BTIME != 0 {
		born = st.Btime
	}
	return socketID{
		dev:  uint64(st.Dev_major)<<32 | uint64(st.Dev_minor),
		ino:  st.Ino,
		born: syscall.Timespec{Sec: born.Sec, Nsec: int64(born.Nsec)},
	}
}
