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
		return errors.Join(fmt.Errorf("path %q: exists and is no link", path), err)
	}
	for range mkdirTries {
		if err = d.makeLink(rel, target); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

// makeLink makes the link under another name and moves it into place, so that
// there is the old or the new one at any time.
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

// unlink removes the link at path; anything else there is not ours and stays.
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
