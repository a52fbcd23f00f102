package csiclient

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// link makes path a symbolic link to target, replacing an older link.
func (d *dirs) link(path, target string) error {
	rel, err := d.rel(path)
	if err != nil {
		return err
	}
	if old, err := d.root.Readlink(rel); err == nil && old == target {
		return nil
	}
	if e, err := d.look(rel); err != nil || e.exists && e.mode&unix.S_IFMT != unix.S_IFLNK {
		return errors.Join(fmt.Errorf("path %q: exists and is not a symbolic link", path), err)
	}
	for range mkdirTries {
		if err = d.makeLink(rel, target); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

// makeLink makes the link under another name and renames it, so that at any time
// either the old or the new link exists.
func (d *dirs) makeLink(rel, target string) error {
	if err := d.mkdirAll(filepath.Dir(rel)); err != nil {
		return err
	}
	temp := filepath.Join(filepath.Dir(rel), "."+filepath.Base(rel)+".new")
	if err := d.root.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := d.root.Symlink(target, temp); err != nil {
		return err
	}
	return d.root.Rename(temp, rel)
}

// unlink removes the link at path. Anything else there was not made by csi-volmgr and stays.
func (d *dirs) unlink(path string) error {
	rel, err := d.rel(path)
	if err != nil {
		return err
	}
	e, err := d.look(rel)
	if err != nil {
		return err
	}
	if e.exists && e.mode&unix.S_IFMT == unix.S_IFLNK {
		err = d.inParent(rel, func(fd int, name string) error { return unix.Unlinkat(fd, name, 0) })
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove %s: %w", path, err)
		}
	}
	d.prune(rel)
	return nil
}
