package mount

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/beneath"
	"github.com/csi-volmgr/csi-volmgr/internal/host/pathname"
)

const (
	// noLinks is the rule for resolving a clean absolute path.
	noLinks = unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS
	// within is the rule for every lookup that starts at a descriptor.
	within = unix.RESOLVE_BENEATH | noLinks
)

// place is a path prepared for work on descriptors: its directory, open, and its last
// element, which need not exist. The open directory does not keep a mount at the path
// busy.
type place struct {
	dir  int
	name string
}

// place resolves all elements of path except the last.
func (k *Kernel) place(path string) (place, error) {
	clean, err := cleanPath(path)
	if err != nil {
		return place{}, err
	}
	if clean == "/" {
		return place{}, fmt.Errorf("%q is the root directory, which cannot be a mount target: %w", path, unix.EINVAL)
	}
	if slices.Contains(k.roots, clean) {
		if clean, err = filepath.EvalSymlinks(clean); err != nil {
			return place{}, err
		}
	}
	root := k.rootOf(clean)
	dir, err := k.openDir(filepath.Dir(clean))
	if root == "" || !errors.Is(err, unix.ELOOP) {
		return place{dir, filepath.Base(clean)}, err
	}
	// The path contains a link, which is allowed in the root's own path.
	top, err := ignoreEINTR(func() (int, error) {
		return unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return place{}, os.NewSyscallError("open", err)
	}
	rel := strings.TrimPrefix(strings.TrimPrefix(clean, root), "/")
	if !strings.Contains(rel, "/") {
		return place{top, rel}, nil
	}
	defer unix.Close(top)
	dir, err = k.openAt(top, filepath.Dir(rel), unix.O_PATH|unix.O_DIRECTORY, within)
	return place{dir, filepath.Base(rel)}, err
}

// rootOf returns the longest root that path lies below, or "" if there is none.
func (k *Kernel) rootOf(path string) string {
	best := ""
	for _, root := range k.roots {
		if path != root && pathname.Within(path, root) && len(root) > len(best) {
			best = root
		}
	}
	return best
}

func cleanPath(path string) (string, error) {
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("%q is not an absolute path: %w", path, unix.EINVAL)
	}
	return filepath.Clean(path), nil
}

func (p place) close() { unix.Close(p.dir) }

// open opens what is at the place for identity only (O_PATH): the topmost mount, or a
// symbolic link itself.
func (k *Kernel) open(p place) (int, error) {
	return k.openAt(p.dir, p.name, unix.O_PATH|unix.O_NOFOLLOW, within)
}

// proc returns a path to the place for system calls that take only paths.
func (p place) proc() string { return procFD(p.dir) + "/" + p.name }

// canonical returns the place's path as the mount table shows it.
func (p place) canonical() (string, error) {
	dir, err := os.Readlink(procFD(p.dir))
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, p.name), nil
}

func procFD(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// openDir opens a clean absolute path of a directory for identity, without following
// links.
func (k *Kernel) openDir(path string) (int, error) {
	return k.openAt(unix.AT_FDCWD, path, unix.O_PATH|unix.O_DIRECTORY, noLinks)
}

// openAt opens path, relative to dir, under the rule resolve.
func (k *Kernel) openAt(dir int, path string, flags int, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: resolve}
	open := beneath.Open
	if !k.has(OpenAt2) {
		open = beneath.Walk
	}
	fd, err := open(dir, path, &how)
	return fd, os.NewSyscallError("open", err)
}

// openTarget opens for identity only what a mount at path would cover, or a mount that is
// to be changed. A symbolic link is an error.
func (k *Kernel) openTarget(path string) (int, error) {
	clean, err := cleanPath(path)
	if err == nil && clean != "/" {
		fd, err := k.openAt(unix.AT_FDCWD, clean, unix.O_PATH, noLinks)
		if !errors.Is(err, unix.ELOOP) {
			return fd, err
		}
		// The link may be in the path of a root, which is allowed.
	}
	p, err := k.place(path)
	if err != nil {
		return -1, err
	}
	defer p.close()
	return k.openTargetAt(p)
}

// openTargetAt is openTarget for a place.
func (k *Kernel) openTargetAt(p place) (int, error) {
	fd, err := k.open(p)
	if err != nil {
		return -1, err
	}
	st, err := k.identify(fd)
	if err == nil && st.link {
		err = fmt.Errorf("is a symbolic link: %w", unix.ELOOP)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func ignoreEINTR[T any](f func() (T, error)) (T, error) {
	for {
		v, err := f()
		if err != unix.EINTR {
			return v, err
		}
	}
}

// missing reports whether err means that the path does not exist.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
}
