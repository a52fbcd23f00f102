package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/pathname"
)

// ErrEscapes means that a path leads out of the directory that it must stay in.
var ErrEscapes = errors.New("leads out of its directory")

// maxResolves is how often a lookup is retried because something was renamed during it. A
// process that never stops renaming makes it fail.
const maxResolves = 128

// Open opens an absolute path for identity only (O_PATH): the topmost mount there. No
// element of the path below the Kernel's roots may be a symbolic link.
func (k *Kernel) Open(path string) (*os.File, error) {
	fd, err := k.openAny(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), filepath.Clean(path)), nil
}

// OpenBeneath opens the relative path rel in the directory dir, for identity only
// (O_PATH). It follows symbolic links, including the last element, while they stay
// beneath dir; otherwise it returns [ErrEscapes], even if another process renames things
// meanwhile.
func (k *Kernel) OpenBeneath(dir *os.File, rel string) (*os.File, error) {
	fd, err := k.openBeneath(int(dir.Fd()), rel)
	if err != nil {
		return nil, fmt.Errorf("%s in %s: %w", rel, dir.Name(), err)
	}
	return os.NewFile(uintptr(fd), filepath.Join(dir.Name(), rel)), nil
}

func (k *Kernel) openBeneath(dir int, rel string) (int, error) {
	if !filepath.IsLocal(rel) || strings.ContainsRune(rel, 0) {
		return -1, ErrEscapes
	}
	var fd int
	var err error
	for range maxResolves {
		fd, err = k.openAt(dir, filepath.Clean(rel), unix.O_PATH, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_MAGICLINKS)
		if !errors.Is(err, unix.EAGAIN) {
			break
		}
	}
	if errors.Is(err, unix.EXDEV) {
		return -1, fmt.Errorf("%w: %w", ErrEscapes, err)
	}
	return fd, err
}

// BindFile binds the open file src to target, whatever its path refers to now. Otherwise
// it is like [Kernel.Bind].
func (k *Kernel) BindFile(src *os.File, target string, o BindOptions) error {
	return wrap(k.bindFD(int(src.Fd()), target, o.change()), "bind %s to %s", src.Name(), target)
}

// UnmountTree removes every mount at and below target, the deepest first. It first makes
// them private, so that unmounting does not propagate to other places, such as a
// directory that target is bound from.
func (k *Kernel) UnmountTree(ctx context.Context, target string) error {
	mounts, err := k.List(ctx, target)
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if err := k.SetPropagation(m.Path, Private); err != nil && !missing(err) && !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	for _, m := range slices.Backward(mounts) {
		if err := k.Unmount(ctx, m.Path); err != nil {
			return err
		}
	}
	return nil
}

// HasLabels reports whether files on the mount that holds path can have individual
// SELinux labels: the kernel shows "seclabel" for the mount, and it was not mounted with
// one label for all files (context=).
func (k *Kernel) HasLabels(path string) (bool, error) {
	r, err := k.rowOf(path)
	if err != nil {
		return false, fmt.Errorf("labels of %s: %w", path, err)
	}
	return labelled(r.superOptions), nil
}

// rowOf returns the mount table row of the mount that holds path.
func (k *Kernel) rowOf(path string) (best row, err error) {
	canonical, err := k.canonical(path)
	if err != nil {
		return row{}, err
	}
	rows, err := k.readMountinfo()
	if err != nil {
		return row{}, err
	}
	for _, r := range rows {
		if pathname.Within(canonical, r.path) && len(r.path) >= len(best.path) {
			best = r
		}
	}
	return best, nil
}

func labelled(superOptions []string) bool {
	return slices.Contains(superOptions, "seclabel") &&
		!slices.ContainsFunc(superOptions, func(o string) bool { return strings.HasPrefix(o, "context=") })
}
