package holders

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/host/pathname"
)

// tree is a directory or file of a file system with everything below it: something that
// may be held.
type tree struct {
	dev  uint64
	root string // within the file system
	// mounted means that it is a whole mount, not a directory on one; path, fsType and id are
	// the mount's.
	mounted      bool
	path, fsType string
	id           uint64
}

// treesAt returns the trees at p: that of every mount stacked there, or if nothing is
// mounted there, the part of the file system at p.
func treesAt(rows []mount.Row, p string) []tree {
	var trees []tree
	var on *mount.Row
	for i, r := range rows {
		switch {
		case r.Path == p:
			trees = append(trees, tree{dev: r.Dev, root: r.Root, mounted: true, path: r.Path, fsType: r.FSType, id: r.ID})
		case pathname.Within(p, r.Path) && (on == nil || len(r.Path) >= len(on.Path)):
			on = &rows[i]
		}
	}
	if trees == nil && on != nil {
		trees = append(trees, tree{dev: on.Dev, root: path.Join(on.Root, below(p, on.Path))})
	}
	return trees
}

// table is a mount table with an index of the rows in question.
type table struct {
	rows []mount.Row
	root string // the root directory of its processes, as this process sees it
	// relevant are the rows that show a part of a tree or device in question.
	relevant []mount.Row
	byID     map[uint64]mount.Row
	trees    []tree
}

func newTable(rows []mount.Row, root string, trees []tree, devices []uint64) table {
	t := table{rows: rows, root: strings.TrimSuffix(root, "/"), byID: make(map[uint64]mount.Row, len(rows)), trees: trees}
	for _, r := range rows {
		t.byID[r.ID] = r
		if overlaps(r, trees) || slices.Contains(devices, r.Dev) {
			t.relevant = append(t.relevant, r)
		}
	}
	return t
}

// overlaps reports whether files of a tree can be reached through r.
func overlaps(r mount.Row, trees []tree) bool {
	return slices.ContainsFunc(trees, func(t tree) bool {
		return r.Dev == t.dev && (pathname.Within(r.Root, t.root) || pathname.Within(t.root, r.Root))
	})
}

// mounts returns the mount points that show only what is in question, sorted, without copies of
// the mounts at the spots.
func (t table) mounts(at []spot) []string {
	var paths []string
	for _, r := range t.relevant {
		showsMore := func(tr tree) bool { return r.Dev == tr.dev && !pathname.Within(r.Root, tr.root) }
		if !slices.ContainsFunc(t.trees, showsMore) && !t.copied(r, at) {
			paths = append(paths, r.Path)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// spot is where a mount is: the directory of a file system on which it is mounted, and its path.
type spot struct {
	dev       uint64
	dir, path string
}

// spotOf returns where r is mounted; false if the table does not have the mount below it.
func (t table) spotOf(r mount.Row) (spot, bool) {
	on, known := t.byID[r.Parent]
	if !known || on.ID == r.ID || !pathname.Within(r.Path, on.Path) {
		return spot{}, false
	}
	return spot{on.Dev, path.Join(on.Root, below(r.Path, on.Path)), r.Path}, true
}

// spots returns where the mounts in question below dir are; none if dir is "".
func (t table) spots(dir string) (all []spot) {
	for _, r := range t.relevant {
		if at, known := t.spotOf(r); known && dir != "" && pathname.Within(r.Path, dir) {
			all = append(all, at)
		}
	}
	return all
}

// copied reports whether r is a copy of a mount at one of the spots. A path alone does not tell:
// a container may mount anything at such a path.
func (t table) copied(r mount.Row, at []spot) bool {
	here, known := t.spotOf(r)
	return known && slices.ContainsFunc(at, func(o spot) bool {
		return here.dev == o.dev && here.dir == o.dir && strings.HasSuffix(here.path, o.path)
	})
}

// matches reports whether the file at p, the target of a process's link, is in question.
// mountID is the id of its mount, 0 if unknown.
func (t table) matches(p string, mountID uint64) bool {
	p = t.localPath(p)
	if r, known := t.byID[mountID]; known {
		return pathname.Within(p, r.Path) && t.covers(r, p)
	}
	if !slices.ContainsFunc(t.relevant, func(r mount.Row) bool { return pathname.Within(p, r.Path) }) {
		return false
	}
	on := t.mountOf(p)
	return slices.ContainsFunc(t.relevant, func(r mount.Row) bool { return r.Path == on.Path && t.covers(r, p) })
}

// localPath converts a path as this process reads it to one as the table's processes see it.
func (t table) localPath(p string) string {
	if t.root != "" && pathname.Within(p, t.root) {
		return "/" + below(p, t.root)
	}
	return p
}

// mountOf returns the mount that holds p: the topmost with the longest path.
func (t table) mountOf(p string) mount.Row {
	var on mount.Row
	for _, r := range t.rows {
		if pathname.Within(p, r.Path) && len(r.Path) >= len(on.Path) {
			on = r
		}
	}
	return on
}

// covers reports whether p, which is on r, is in one of the trees or on a device in
// question.
func (t table) covers(r mount.Row, p string) bool {
	file := path.Join(r.Root, below(p, r.Path))
	if slices.ContainsFunc(t.trees, func(tr tree) bool { return r.Dev == tr.dev && pathname.Within(file, tr.root) }) {
		return true
	}
	return !slices.ContainsFunc(t.trees, func(tr tree) bool { return r.Dev == tr.dev }) &&
		slices.ContainsFunc(t.relevant, func(o mount.Row) bool { return o.ID == r.ID })
}

// readTable reads the mount table of a process.
func (f *Finder) readTable(pid string) ([]mount.Row, error) {
	text, err := os.ReadFile(f.proc(pid, "mountinfo"))
	if err != nil {
		return nil, err
	}
	rows, err := mount.ParseTable(text)
	if err != nil {
		return nil, fmt.Errorf("mount table of process %s: %w", pid, err)
	}
	return rows, nil
}

// below returns p, which lies within dir, relative to dir; "" for dir itself.
func below(p, dir string) string {
	return strings.TrimPrefix(strings.TrimPrefix(p, dir), "/")
}
