package registration

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// dirMode is that of the registration directory where it is made.
	dirMode = 0o750
	// maxSockets and maxDirs bound what is looked at. A node has tens of drivers.
	maxSockets = 1024
	maxDirs    = 256
	// scanTries bounds how often a scan begins anew because the directory vanished.
	scanTries = 8
)

// errTooMany is a directory with more in it than any node has drivers.
var errTooMany = errors.New("too many sockets or subdirectories")

// socketID tells one socket from another made later at the same path. The
// inode number alone does not: file systems hand it out again at once.
type socketID struct {
	dev, ino uint64
	born     syscall.Timespec
}

// scanDir returns the sockets in dir and its subdirectories by path. It calls
// watch for each directory before it reads it, so that nothing is missed
// between the two. Names that begin with a dot are passed over, and so are
// links: only what is really there counts.
func scanDir(dir string, watch func(string) error) (map[string]socketID, error) {
	found := map[string]socketID{}
	dirs := 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case path != dir && (errors.Is(err, fs.ErrNotExist) || strings.HasPrefix(filepath.Base(path), ".")):
			if e != nil && e.IsDir() {
				return fs.SkipDir
			}
			return nil
		case err != nil:
			return err
		case e.IsDir():
			if dirs++; dirs > maxDirs {
				return errTooMany
			}
			if err := watch(path); err != nil && (path == dir || !errors.Is(err, fs.ErrNotExist)) {
				return err
			}
		case e.Type() == fs.ModeSocket:
			if len(found) == maxSockets {
				return errTooMany
			}
			if id, ok := identify(path); ok {
				found[path] = id
			}
		}
		return nil
	})
	return found, err
}

// identify returns the identity of the socket at path. The time of birth is
// preferred to ctime, which a mere chmod of the socket changes.
func identify(path string) (socketID, bool) {
	var st unix.Statx_t
	const want = unix.STATX_TYPE | unix.STATX_INO | unix.STATX_CTIME | unix.STATX_BTIME
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, want, &st); err != nil ||
		st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return socketID{}, false
	}
	born := st.Ctime
	if st.Mask&unix.STATX_BTIME != 0 {
		born = st.Btime
	}
	return socketID{
		dev:  uint64(st.Dev_major)<<32 | uint64(st.Dev_minor),
		ino:  st.Ino,
		born: syscall.Timespec{Sec: born.Sec, Nsec: int64(born.Nsec)},
	}, true
}
