package payload

import (
	"os"

	"golang.org/x/sys/unix"
)

const (
	// maxLink is more than a link of ours has: "..data/" and one name.
	maxLink = 512
	// readSize is how much of a directory or file is read at once.
	readSize = 8 << 10
)

// open opens name beneath dir; no element of it may be a symbolic link or a mount.
// What it returns is a bare descriptor: an os.File costs a system call more, and
// a finalizer.
func open(dir int, name string, flags uint64, mode uint64) (int, error) {
	how := unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Mode:    mode,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	}
	for {
		fd, err := unix.Openat2(dir, name, &how)
		if err == nil {
			return fd, nil
		}
		if err != unix.EINTR {
			return -1, &os.PathError{Op: "open", Path: name, Err: err}
		}
	}
}

func openDir(dir int, name string) (int, error) {
	return open(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
}

// readlink returns what the symbolic link name says, or "" where there is none,
// or one that is too long to be ours.
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
	// A descriptor of its own, since reading moves the offset.
	fd, err := openDir(dir, ".")
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return readNames(fd)
}

// readNames returns the names in the directory that fd was just opened at.
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

// writeAll writes all of data.
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
