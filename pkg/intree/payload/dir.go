package payload

import (
	"os"

	"golang.org/x/sys/unix"
)

// open opens name beneath dir; no element of it may be a symbolic link or a mount.
func open(dir int, name string, flags uint64, mode uint64) (*os.File, error) {
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Mode:    mode,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

func openDir(dir int, name string) (*os.File, error) {
	return open(dir, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
}

// readlink returns what the symbolic link name says, or "" where there is none.
func readlink(dir int, name string) string {
	buf := make([]byte, maxPath)
	n, err := unix.Readlinkat(dir, name, buf)
	if err != nil {
		return ""
	}
	return string(buf[:n])
}

// list returns the names in dir.
func list(dir int) ([]string, error) {
	// A descriptor of its own, since reading moves the offset.
	f, err := openDir(dir, ".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}
