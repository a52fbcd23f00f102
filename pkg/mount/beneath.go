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

	"github.com/csi-volmgr/csi-volmgr/pkg/pathname"
)

// ErrEscapes says that a path leads out of the directory that it has to stay in.
var ErrEscapes = errors.New("leads out of its directory")

// maxResolves is how often a look-up is begun again because something was
// renamed meanwhile. A process that renames without end makes it fail.
const maxResolves = 128

// Open opens what is at an absolute path, for identity only (O_PATH), with no
// symbolic link in it below the Kernel's roots: of mounts the topmost.
func (k *Kernel) Open(path string) (*os.File, error) {
	clean, err := cleanPath(path)
	if err != nil {
		return nil, err
	}
	fd, err := k.openAny(clean)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), clean), nil
}

// OpenBeneath opens what is at the relative path rel in the directory dir, for
// identity only (O_PATH). Symbolic links are followed, the last one too, as far
// as they stay beneath dir; one that does not is [ErrEscapes], also while
// another process renames what is there. Without [OpenAt2] no link is followed.
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

// BindFile makes what src is open at appear at target, whatever its path leads
// to by now. The rest is as with [Kernel.Bind].
func (k *Kernel) BindFile(src *os.File, target string, o BindOptions) error {
	if err := k.bindFD(int(src.Fd()), target, o.change()); err != nil {
		return fmt.Errorf("bind %s to %s: %w", src.Name(), target, err)
	}
	return nil
}

// UnmountTree removes every mount at and below target, the deepest first. It
// makes them private before, so that nothing is unmounted anywhere else, as
// at the directory that target is a part of.
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

// HasLabels reports whether files at the mount on which path is can have
// SELinux labels of their own: the kernel shows "seclabel" for it, and it was
// not mounted with one label for all (context=).
func (k *Kernel) HasLabels(path string) (bool, error) {
	r, err := k.rowOf(path)
	if err != nil {
		return false, fmt.Errorf("labels of %s: %w", path, err)
	}
	return labelled(r.superOptions), nil
}

// rowOf returns the line of the mount table that path is on.
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
	return hasOption(superOptions, "seclabel") &&
		!slices.ContainsFunc(superOptions, func(o string) bool { return strings.HasPrefix(o, "context=") })
}
