package poddir

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// What is opened here is a bare descriptor: an os.File costs a system call more,
// and a finalizer.

const (
	dirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	// beneath is the rule for every look-up below the node's root.
	beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS
)

// openRoot opens the node's root, whose own path may have symbolic links.
func openRoot(root string) (int, error) {
	fd, err := retry(func() (int, error) {
		return unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: root, Err: err}
	}
	return fd, nil
}

// openBelow opens the directory rel below top, if no element of rel is a
// symbolic link.
func openBelow(top int, rel string) (int, error) {
	how := unix.OpenHow{Flags: dirFlags, Resolve: beneath}
	fd, err := retry(func() (int, error) { return unix.Openat2(top, rel, &how) })
	switch err {
	case nil:
		return fd, nil
	case unix.ENOSYS, unix.EPERM: // before Linux 5.6, or hidden by a seccomp filter
		return walkBelow(top, rel)
	}
	return -1, &os.PathError{Op: "openat2", Path: rel, Err: err}
}

// walkBelow is openBelow by one call for each element.
func walkBelow(top int, rel string) (int, error) {
	at, err := openIn(top, ".")
	for elem := range strings.SplitSeq(rel, "/") {
		if err != nil {
			break
		}
		var next int
		next, err = openIn(at, elem)
		unix.Close(at)
		at = next
	}
	return at, err
}

func openIn(dir int, name string) (int, error) {
	fd, err := retry(func() (int, error) { return unix.Openat(dir, name, dirFlags, 0) })
	if err != nil {
		return -1, &os.PathError{Op: "openat", Path: name, Err: err}
	}
	return fd, nil
}

// openDeepest opens as much of the directory rel below top as is there, and
// returns which elements are missing.
func openDeepest(top int, rel string) (fd int, missing []string, err error) {
	elems := strings.Split(rel, "/")
	for n := len(elems); ; n-- {
		at := "."
		if n > 0 {
			at = filepath.Join(elems[:n]...)
		}
		fd, err = openBelow(top, at)
		if n == 0 || !os.IsNotExist(err) {
			return fd, elems[n:], err
		}
	}
}

// makeIn opens the directory name in dir, or makes it.
func makeIn(dir int, name string, mode uint32) (fd int, made bool, err error) {
	err = unix.Mkdirat(dir, name, mode)
	if err != nil && err != unix.EEXIST {
		return -1, false, &os.PathError{Op: "mkdirat", Path: name, Err: err}
	}
	made = err == nil
	fd, err = openIn(dir, name)
	if err != nil || !made {
		return fd, false, err
	}
	if err := unix.Fchmod(fd, mode); err != nil { // whatever the umask
		unix.Close(fd)
		return -1, false, &os.PathError{Op: "chmod", Path: name, Err: err}
	}
	return fd, true, nil
}

func retry(f func() (int, error)) (int, error) {
	for {
		fd, err := f()
		if err != unix.EINTR {
			return fd, err
		}
	}
}
