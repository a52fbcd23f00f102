package mount

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/pathname"
)

// Entry is one mount of the mount table.
type Entry struct {
	// ID is the unique id, ParentID that of the mount it is mounted on; both are 0
	// without [MountID].
	ID, ParentID uint64
	// Path is the mount point, relative to the root directory.
	Path string
	// Root is the path within its file system that appears at Path; of nfs, the path on the
	// server.
	Root string
	// FSType is the type of the file system.
	FSType string
	// Source is the name of what was mounted ("/dev/sda1", "tmpfs"); "" on Linux 6.8 to
	// 6.12.
	Source string
	// Dev is the file system's device as major<<32|minor.
	Dev uint64
	// ReadOnly means that the mount or its file system is read-only.
	ReadOnly bool
	// Shared means that mounts made or removed below it propagate to its peers.
	Shared bool
}

// List returns the mounts at and below the directory under, sorted by path. It includes
// hidden mounts and each of several stacked mounts, the topmost last.
func (k *Kernel) List(ctx context.Context, under string) ([]Entry, error) {
	entries, err := inLane(ctx, k.lanes, lane{"list", under}, func() ([]Entry, error) { return k.list(under) })
	if err != nil {
		return nil, fmt.Errorf("list mounts below %s: %w", under, err)
	}
	return entries, nil
}

func (k *Kernel) list(under string) ([]Entry, error) {
	path, err := k.canonical(under)
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entries, err := k.table()
	if err != nil {
		return nil, err
	}
	entries = slices.DeleteFunc(entries, func(e Entry) bool { return !pathname.Within(e.Path, path) })
	slices.SortStableFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Path, b.Path) })
	return entries, nil
}

// canonical returns path as the mount table shows it.
func (k *Kernel) canonical(path string) (string, error) {
	if filepath.Clean(path) == "/" {
		return "/", nil
	}
	p, err := k.place(path)
	if err != nil {
		return "", err
	}
	defer p.close()
	return p.canonical()
}

// table returns all mounts that can be reached from the root directory, each after the
// mount that it is mounted on.
func (k *Kernel) table() ([]Entry, error) {
	if !k.has(MountID) {
		rows, err := k.readMountinfo()
		if err != nil {
			return nil, err
		}
		sortByDepth(rows, func(r row) (uint64, uint64) { return r.id, r.parent })
		entries := make([]Entry, len(rows))
		for i, r := range rows {
			entries[i] = r.entry()
		}
		return entries, nil
	}
	ids, err := listMounts(0)
	if err != nil {
		return nil, os.NewSyscallError("listmount", err)
	}
	entries := make([]Entry, 0, len(ids))
	for _, id := range ids {
		e, err := statMount(id, statmountAll)
		if errors.Is(err, unix.ENOENT) {
			continue // unmounted since it was listed
		}
		if err != nil {
			return nil, os.NewSyscallError("statmount", err)
		}
		entries = append(entries, e)
	}
	sortByDepth(entries, func(e Entry) (uint64, uint64) { return e.ID, e.ParentID })
	return k.withRoots(entries)
}

// MountOf returns the mount in a table that holds path: the deepest above it, and the last
// of several at one path.
func MountOf(table []Entry, path string) (on Entry, found bool) {
	for _, e := range table {
		if pathname.Within(path, e.Path) && len(e.Path) >= len(on.Path) {
			on, found = e, true
		}
	}
	return on, found
}

// sortByDepth puts each mount after the one that it is mounted on. Sorting by id would
// not: a mount can be moved, and propagation puts new mounts below old ones.
func sortByDepth[T any](mounts []T, ids func(T) (id, parent uint64)) {
	parents := make(map[uint64]uint64, len(mounts))
	for _, m := range mounts {
		id, parent := ids(m)
		parents[id] = parent
	}
	depths := make(map[uint64]int, len(mounts))
	var depth func(id uint64) int
	depth = func(id uint64) int {
		if d, known := depths[id]; known {
			return d
		}
		depths[id] = 0 // ends the recursion if the root is its own parent
		if parent, known := parents[id]; known {
			depths[id] = depth(parent) + 1
		}
		return depths[id]
	}
	slices.SortStableFunc(mounts, func(a, b T) int {
		idA, _ := ids(a)
		idB, _ := ids(b)
		return cmp.Compare(depth(idA), depth(idB))
	})
}

// IsShared reports whether the mount that holds path propagates mounts and unmounts below
// it.
func (k *Kernel) IsShared(path string) (bool, error) {
	shared, err := k.isShared(path)
	if err != nil {
		return false, fmt.Errorf("propagation of %s: %w", path, err)
	}
	return shared, nil
}

func (k *Kernel) isShared(path string) (bool, error) {
	fd, err := k.openAny(path)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	st, err := k.identify(fd)
	if err != nil {
		return false, err
	}
	if k.has(MountID) {
		m, err := statMount(st.mountID, statmountBasic)
		return m.Shared, os.NewSyscallError("statmount", err)
	}
	rows, err := k.readMountinfo()
	if err != nil {
		return false, err
	}
	for _, r := range rows {
		if r.id == st.mountID {
			return r.shared, nil
		}
	}
	return false, fmt.Errorf("mount %d is not in the mount table", st.mountID)
}

// openAny opens path for identity; unlike openTarget also the root directory.
func (k *Kernel) openAny(path string) (int, error) {
	if filepath.Clean(path) == "/" {
		return k.openDir("/")
	}
	return k.openTarget(path)
}
