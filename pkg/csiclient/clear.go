package csiclient

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// clear removes what is left at path if nothing can be lost by it: an empty
// directory; for a block volume an empty file, a device node or a link. Never a
// mount: the kernel refuses (EBUSY). It reports whether nothing is there now.
func (d *dirs) clear(path string, mode state.Mode) (bool, error) {
	rel, err := d.rel(path)
	if err != nil {
		return false, err
	}
	err = d.inParent(rel, func(fd int, name string) error { return unix.Unlinkat(fd, name, unix.AT_REMOVEDIR) })
	if errors.Is(err, unix.ENOTDIR) && mode == state.Block {
		err = d.clearFile(rel)
	}
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return true, nil
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST), errors.Is(err, unix.EBUSY),
		errors.Is(err, unix.ENOTDIR):
		return false, nil
	}
	return false, fmt.Errorf("remove %s: %w", path, err)
}

// clearUp is clear, and prune whatever comes of it.
func (d *dirs) clearUp(path string, mode state.Mode) (bool, error) {
	rel, err := d.rel(path)
	if err != nil {
		return false, err
	}
	gone, err := d.clear(path, mode)
	d.prune(rel)
	return gone, err
}

// openIn opens the directory name of parent for its place only.
func openIn(parent int, name string) (int, error) {
	return unix.Openat(parent, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// clearFile is clear of what is no directory; ENOTEMPTY says that it may be a person's.
func (d *dirs) clearFile(rel string) error {
	e, err := d.look(rel)
	if err != nil {
		return err
	}
	switch kind := e.mode & unix.S_IFMT; {
	case e.mounted:
		return unix.EBUSY
	case !e.exists, kind == unix.S_IFBLK, kind == unix.S_IFLNK, kind == unix.S_IFREG && e.size == 0:
		return d.inParent(rel, func(fd int, name string) error { return unix.Unlinkat(fd, name, 0) })
	}
	return unix.ENOTEMPTY
}

// prune removes the empty directories above rel, but for those directly in
// the root. What is not empty, or a mount, ends it.
func (d *dirs) prune(rel string) {
	for rel = filepath.Dir(rel); strings.Contains(rel, "/"); rel = filepath.Dir(rel) {
		err := d.inParent(rel, func(fd int, name string) error { return unix.Unlinkat(fd, name, unix.AT_REMOVEDIR) })
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return
		}
	}
}
