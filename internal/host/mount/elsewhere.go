package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/pathname"
)

// Elsewhere returns the other places in this process's mount namespace where the
// directory mounted at path is mounted, except those below the Kernel's roots, which
// belong to the node. If a root is itself mounted at a second place, that place and what
// is below it do not count either. It returns none if nothing is mounted at path.
func (k *Kernel) Elsewhere(ctx context.Context, path string) ([]string, error) {
	found, err := inLane(ctx, k.lanes, lane{"find", path}, func() ([]string, error) { return k.otherMounts(path) })
	if err != nil {
		return nil, fmt.Errorf("find other mounts of %s: %w", path, err)
	}
	return found, nil
}

func (k *Kernel) otherMounts(path string) ([]string, error) {
	same := k.sameInTable
	if k.has(MountID) {
		same = k.sameByID
	}
	here, entries, err := same(path)
	if err != nil || len(entries) < 2 { // one of them is the mount at path
		return nil, err
	}
	var roots []string
	for _, root := range k.roots {
		if root, err = k.canonical(root); err != nil {
			return nil, err
		}
		roots = append(roots, root)
	}
	return outsideRoots(here, roots, entries), nil
}

// outsideRoots returns the paths of the entries that are outside the roots.
func outsideRoots(here string, roots []string, entries []Entry) []string {
	own := []string{here} // also the paths relative to the roots, for second mounts of a root
	for _, root := range roots {
		for _, e := range entries {
			if pathname.Within(e.Path, root) {
				own = append(own, strings.TrimPrefix(e.Path, root))
			}
		}
	}
	var found []string
	for _, e := range entries {
		ours := slices.ContainsFunc(own, func(name string) bool { return strings.HasSuffix(e.Path, name) })
		if !ours && !slices.Contains(found, e.Path) {
			found = append(found, e.Path)
		}
	}
	return found
}

// sameInTable returns all mounts of the directory mounted at path, and path as the mount
// table shows it; none if nothing is mounted there.
func (k *Kernel) sameInTable(path string) (here string, same []Entry, err error) {
	here, err = k.canonical(path)
	if missing(err) {
		return "", nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	entries, err := k.table()
	if err != nil {
		return "", nil, err
	}
	return here, sameAs(here, entries), nil
}

// sameAs returns the entries of the directory that is mounted at path; none if nothing is.
func sameAs(path string, entries []Entry) []Entry {
	var of origin
	mounted := false
	for _, e := range entries {
		if e.Path == path { // the topmost comes last
			of, mounted = e.origin(), true
		}
	}
	return slices.DeleteFunc(entries, func(e Entry) bool { return !mounted || e.origin() != of })
}

// sameByID is sameInTable by mount ids, without reading the whole mount table.
func (k *Kernel) sameByID(path string) (here string, same []Entry, err error) {
	id, mounted, err := k.mountAt(path)
	if storageDead(err) {
		return k.sameInTable(path)
	}
	if err != nil || !mounted {
		return "", nil, err
	}
	at, err := statMount(id, statmountSame)
	if err == unix.ENOENT {
		return "", nil, nil // it has just been unmounted
	}
	if err != nil {
		return "", nil, os.NewSyscallError("statmount", err)
	}
	ids, err := k.origins.same(at)
	if errors.Is(err, errRootHidden) {
		return k.sameInTable(path)
	}
	if err != nil {
		return "", nil, err
	}
	for _, id := range ids {
		if id == at.ID {
			same = append(same, at)
			continue
		}
		switch e, err := statMount(id, statmountSame); {
		case err == unix.ENOENT:
		case err != nil:
			return "", nil, os.NewSyscallError("statmount", err)
		default:
			same = append(same, e)
		}
	}
	return at.Path, same, nil
}

// mountAt returns the topmost mount at path, and whether there is one.
func (k *Kernel) mountAt(path string) (id uint64, mounted bool, err error) {
	p, err := k.place(path)
	if missing(err) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	defer p.close()
	st, err := k.identifyPlace(p)
	if missing(err) {
		return 0, false, nil
	}
	return st.mountID, st.mountRoot, err
}
