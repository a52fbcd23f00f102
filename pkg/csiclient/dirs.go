package csiclient

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// dirMode is that of every directory made for a driver, as the kubelet's.
const dirMode = 0o750

// mkdirTries bounds how often making a directory begins anew because another
// volume's clean-up removed an empty parent of it meanwhile.
const mkdirTries = 64

// dirs makes and removes what calls need and leave, beneath one root (rule 8),
// by directory entries alone: nothing is opened that storage may be behind.
type dirs struct {
	root *os.Root
	base string // root's path
}

// rel returns path relative to the root, which it must be beneath.
func (d *dirs) rel(path string) (string, error) {
	rel, err := filepath.Rel(d.base, path)
	if err != nil || !filepath.IsAbs(path) || !filepath.IsLocal(rel) || rel == "." {
		return "", fmt.Errorf("path %q: not beneath %s", path, d.base)
	}
	return rel, nil
}

// makeDir makes the directory path and its parents. That something is at path
// already is fine if it is a directory, or is not to be told: a dead mount.
func (d *dirs) makeDir(path string) error {
	rel, err := d.rel(path)
	if err != nil {
		return err
	}
	if err := d.mkdirAll(filepath.Dir(rel)); err != nil {
		return err
	}
	err = d.root.Mkdir(rel, dirMode)
	if errors.Is(err, fs.ErrNotExist) { // the parent went meanwhile
		err = d.mkdirAll(rel)
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if e, err := d.look(rel); err == nil && e.mode&unix.S_IFMT != unix.S_IFDIR {
		return fmt.Errorf("path %q: exists and is no directory", path)
	}
	return nil
}

// makeParent makes the directory that path is to be in.
func (d *dirs) makeParent(path string) error {
	rel, err := d.rel(path)
	if err != nil {
		return err
	}
	return d.mkdirAll(filepath.Dir(rel))
}

func (d *dirs) mkdirAll(rel string) (err error) {
	for range mkdirTries {
		err = d.root.MkdirAll(rel, dirMode)
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) { // each means that another was quicker
			return err
		}
	}
	return err
}

// entry is what a directory says of one name in it.
type entry struct {
	exists, mounted bool
	mode            uint16
	size            uint64
}

// look tells what is at rel, following no link and asking no storage.
func (d *dirs) look(rel string) (entry, error) {
	var e entry
	err := d.inParent(rel, func(fd int, name string) error {
		var st unix.Statx_t
		const flags = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_STATX_DONT_SYNC
		if err := unix.Statx(fd, name, flags, unix.STATX_TYPE|unix.STATX_SIZE, &st); err != nil {
			return err
		}
		e = entry{exists: true, mounted: st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, mode: st.Mode, size: st.Size}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return entry{}, nil
	}
	return e, err
}

// exists reports whether something is at path; true where that cannot be told.
func (d *dirs) exists(path string) bool {
	rel, err := d.rel(path)
	if err != nil {
		return true
	}
	e, err := d.look(rel)
	return err != nil || e.exists
}

// clear removes what is left at path if nothing can be lost by it: an empty
// directory; for a block volume an empty file, a device node or a link. Never a
// mount: the kernel refuses (EBUSY). It reports whether nothing is there now.
func (d *dirs) clear(path string, mode state.Mode) (bool, error) {
	rel, err := d.rel(path)
	if err != nil {
		return false, err
	}
	e, err := d.look(rel)
	if err != nil || e.mounted {
		return false, err
	}
	if !e.exists {
		return true, nil
	}
	flag := -1
	switch e.mode & unix.S_IFMT {
	case unix.S_IFDIR:
		flag = unix.AT_REMOVEDIR
	case unix.S_IFBLK, unix.S_IFLNK:
		flag = 0
	case unix.S_IFREG:
		if e.size == 0 {
			flag = 0
		}
	}
	if flag < 0 || flag == 0 && mode != state.Block {
		return false, nil
	}
	err = d.inParent(rel, func(fd int, name string) error { return unix.Unlinkat(fd, name, flag) })
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return true, nil
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST), errors.Is(err, unix.EBUSY):
		return false, nil
	}
	return false, fmt.Errorf("remove %s: %w", path, err)
}

// prune removes the empty directories above path, but for those directly in
// the root. What is not empty, or a mount, ends it.
func (d *dirs) prune(path string) {
	rel, err := d.rel(path)
	if err != nil {
		return
	}
	for rel = filepath.Dir(rel); strings.Contains(rel, "/"); rel = filepath.Dir(rel) {
		err := d.inParent(rel, func(fd int, name string) error { return unix.Unlinkat(fd, name, unix.AT_REMOVEDIR) })
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return
		}
	}
}

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
	d.prune(path)
	return nil
}

// inParent calls f with a descriptor of the directory that rel is in, reached
// beneath the root.
func (d *dirs) inParent(rel string, f func(fd int, name string) error) error {
	dir, err := d.root.Open(filepath.Dir(rel))
	if err != nil {
		return err
	}
	defer dir.Close()
	return f(int(dir.Fd()), filepath.Base(rel))
}
