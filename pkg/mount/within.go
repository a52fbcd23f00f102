package mount

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Limits of a search for mounts by looking at a tree's entries. A look is a
// microsecond; each mount of the node costs three in its table, and a node has
// thousands. So a pod's few files are looked at, and a large tree is not.
const (
	maxSearched    = 256
	maxSearchDepth = 16
)

// errUnsearched says that a tree's entries were not all looked at.
var errUnsearched = errors.New("not all was looked at")

// mountedIn returns where something is mounted at path or below it; "" is
// nowhere. p is the place of path.
func (k *Kernel) mountedIn(p place, path string) (string, error) {
	if k.has(MountRoot) {
		s := search{k: k, left: maxSearched}
		at, err := s.look(p.dir, p.name, path, 0)
		if err == nil {
			return at, nil
		}
	}
	mounts, err := k.list(path)
	if err != nil || len(mounts) == 0 {
		return "", err
	}
	return mounts[0].Path, nil
}

type search struct {
	k    *Kernel
	left int
}

// look looks at the entry name of dir and all below it. Any error, also one of
// a process that moves things meanwhile, leaves it to the mount table.
func (s *search) look(dir int, name, path string, depth int) (string, error) {
	if s.left--; s.left < 0 || depth > maxSearchDepth {
		return "", errUnsearched
	}
	var st unix.Statx_t
	_, err := ignoreEINTR(func() (struct{}, error) {
		const flags = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_STATX_DONT_SYNC
		return struct{}{}, unix.Statx(dir, name, flags, unix.STATX_TYPE, &st)
	})
	switch {
	case err != nil:
		return "", err
	case st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0:
		return path, nil
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return "", nil
	}
	fd, err := s.k.openSameMount(dir, name)
	if err != nil {
		return "", err
	}
	d := os.NewFile(uintptr(fd), name)
	defer d.Close()
	names, err := d.Readdirnames(s.left + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	for _, n := range names {
		if at, err := s.look(fd, n, filepath.Join(path, n), depth+1); at != "" || err != nil {
			return at, err
		}
	}
	return "", nil
}
