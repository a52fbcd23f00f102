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

// clear removes a leftover at path if no data can be lost: an empty directory, or for a
// block volume an empty file, a device node or a link. It never removes a mount, as the
// kernel refuses that (EBUSY). It reports whether path is now free.
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

// clearUp calls clear and then prune.
func (d *dirs) clearUp(path string, mode state.Mode) (bool, error) {
	rel, err := d.rel(path)
	if err != nil {
		return false, err
	}
	gone, err := d.clear(path, mode)
	d.prune(rel)
	return gone, err
}

// openIn opens the directory name in parent with O_PATH.
func openIn(parent int, name string) (int, error) {
	return unix.Openat(parent, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// clearFile removes a leftover that is not a directory. It returns ENOTEMPTY for a file
// that may contain data.
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

// prune removes empty directories above rel, except those directly in the root. It
// stops at the first that is not empty or is a mount.
func (d *dirs) prune(rel string) {
	for rel = filepath.Dir(rel); strings.Contains(rel, "/"); rel = filepath.Dir(rel) {
		err := d.inParent(rel, func(fd int, name string) error { return unix.Unlinkat(fd, name, unix.AT_REMOVEDIR) })
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return
		}
	}
}
