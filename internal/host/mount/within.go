package mount

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Limits of a search for mounts that inspects a tree's entries. Inspecting an entry takes
// a microsecond, reading a mount from the mount table three, and a node has thousands of
// mounts. So a pod's few files are inspected, but not a large tree.
const (
	maxSearched    = 256
	maxSearchDepth = 16
)

// errUnsearched means that not all entries of a tree were inspected.
var errUnsearched = errors.New("not all entries were inspected")

// firstMountIn returns a mount point at or below path, or "" if there is none. p is the
// place of path.
func (k *Kernel) firstMountIn(p place, path string) (string, error) {
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

// look inspects the entry name of dir and everything below it. After any error, including
// those from concurrent renames, the caller uses the mount table instead.
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
