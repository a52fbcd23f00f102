package poddir

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/beneath"
)

// What is opened here is a bare descriptor: an os.File costs a system call more,
// and a finalizer.

const (
	dirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	// noLinks are the rules for look-ups of whole paths, and within those for look-ups
	// from a descriptor of the node's root.
	noLinks = unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS
	within  = unix.RESOLVE_BENEATH | noLinks
)

// tree is the node's root directory during one call.
type tree struct {
	root string
	top  int // descriptor of the root; -1 until it is needed
}

func (d Dir) tree() *tree { return &tree{d.root, -1} }

func (t *tree) close() {
	if t.top >= 0 {
		unix.Close(t.top)
	}
}

// open opens the directory rel below the root if no element of rel is a symbolic link.
// It looks up the whole path at once, unless the root's own path has symbolic links.
func (t *tree) open(rel string) (int, error) {
	if t.top < 0 {
		fd, err := openWhole(t.root + "/" + rel)
		switch err {
		case nil:
			return fd, nil
		case unix.ELOOP: // maybe a link in the root's own path, which is allowed
		default:
			return -1, &os.PathError{Op: "open", Path: rel, Err: err}
		}
		if t.top, err = openRoot(t.root); err != nil {
			return -1, err
		}
	}
	return openBelow(t.top, rel)
}

// openWhole opens the directory at a clean absolute path if no element of it is a
// symbolic link.
func openWhole(path string) (int, error) {
	how := unix.OpenHow{Flags: dirFlags, Resolve: noLinks}
	return beneath.Open(unix.AT_FDCWD, path, &how)
}

// openRoot opens the node's root. Its own path may have symbolic links.
func openRoot(root string) (int, error) {
	fd, err := retry(func() (int, error) {
		return unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: root, Err: err}
	}
	return fd, nil
}

// openBelow opens the directory rel below top if no element of rel is a symbolic link.
func openBelow(top int, rel string) (int, error) {
	how := unix.OpenHow{Flags: dirFlags, Resolve: within}
	fd, err := beneath.Open(top, rel, &how)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: rel, Err: err}
	}
	return fd, nil
}

func openIn(dir int, name string) (int, error) {
	fd, err := retry(func() (int, error) { return unix.Openat(dir, name, dirFlags, 0) })
	if err != nil {
		return -1, &os.PathError{Op: "openat", Path: name, Err: err}
	}
	return fd, nil
}

// openDeepest opens the deepest existing directory on the way to rel, and returns the
// elements that are missing below it.
func (t *tree) openDeepest(rel string) (fd int, missing []string, err error) {
	elems := strings.Split(rel, "/")
	for n := len(elems); ; n-- {
		at := "."
		if n > 0 {
			at = filepath.Join(elems[:n]...)
		}
		fd, err = t.open(at)
		if n == 0 && os.IsNotExist(err) {
			// Not wrapped, so that the caller does not retry because of ENOENT.
			return -1, nil, fmt.Errorf("the node's root %s: %v", t.root, err)
		}
		if !os.IsNotExist(err) {
			return fd, elems[n:], err
		}
	}
}

// makeIn opens the directory name in dir, after making it if it is missing.
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
	if err := unix.Fchmod(fd, mode); err != nil { // regardless of the umask
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
