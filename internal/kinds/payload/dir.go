package payload

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/beneath"
)

const (
	// maxLink exceeds the length of any link of ours: "..data/" and one name.
	maxLink = 512
	// readSize is how many bytes of a directory or file are read at once.
	readSize = 8 << 10
)

// open opens name beneath dir; no element of name may be a symbolic link or a mount. It
// returns a bare descriptor, because an os.File costs another system call and a
// finalizer.
func open(dir int, name string, flags uint64, mode uint64) (int, error) {
	how := unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Mode:    mode,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	}
	fd, err := beneath.Open(dir, name, &how)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return fd, nil
}

func openDir(dir int, name string) (int, error) {
	return open(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
}

// readlink returns the target of the symbolic link name. It returns "" if there is no
// link, or if the target is too long to be one of ours.
func readlink(dir int, name string) string {
	var buf [maxLink]byte
	n, err := unix.Readlinkat(dir, name, buf[:])
	if err != nil || n == len(buf) {
		return ""
	}
	return string(buf[:n])
}

// list returns the names in dir.
func list(dir int) ([]string, error) {
	// Reading moves the offset, so use a new descriptor.
	fd, err := openDir(dir, ".")
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return readNames(fd)
}

// readNames returns the names in the newly opened directory fd.
func readNames(fd int) (names []string, err error) {
	var buf [readSize]byte
	for {
		n, err := unix.ReadDirent(fd, buf[:])
		switch {
		case err == unix.EINTR:
		case err != nil:
			return nil, os.NewSyscallError("getdents64", err)
		case n <= 0:
			return names, nil
		default:
			_, _, names = unix.ParseDirent(buf[:n], -1, names)
		}
	}
}

func writeAll(fd int, data []byte) error {
	for len(data) > 0 {
		n, err := unix.Write(fd, data)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return err
		default:
			data = data[n:]
		}
	}
	return nil
}
