package mount

import (
	"errors"
	"os"
	"path"
	"slices"
	"strings"
)

// errRootHidden means that the kernel does not say which directory of its file system is
// mounted.
var errRootHidden = errors.New("the kernel shows neither the root nor the source of the mount")

// hidesRoot reports whether the kernel shows "/" as the root of each mount of a file
// system type, also for a bind mount of a directory below. Linux has one such file system
// (nfs_show_path). All directories of one file system of a server share a device.
func hidesRoot(fsType string) bool { return fsType == "nfs" || fsType == "nfs4" }

// rootOf returns the directory of its file system that a mount shows. Where the kernel hides
// it, the source has it: the path on the server. Two mounts of one directory have the same
// source, also if they were made with two names of the server, because the kernel keeps the
// name with the directory.
func rootOf(fsType, shown, source string) string {
	if !hidesRoot(fsType) {
		return shown
	}
	if at := strings.Index(source, ":/"); at >= 0 { // "nas:/vol", "[::1]:/vol"
		return path.Clean(source[at+1:])
	}
	return shown
}

// lacksRoot reports whether the root of e is not known, as with the statmount of Linux 6.8
// to 6.12, which has no sources.
func (e Entry) lacksRoot() bool { return hidesRoot(e.FSType) && e.Source == "" }

// withRoots completes the entries that lack their root from mountinfo.
func (k *Kernel) withRoots(entries []Entry) ([]Entry, error) {
	if !slices.ContainsFunc(entries, Entry.lacksRoot) {
		return entries, nil
	}
	rows, err := k.readMountinfo()
	if err != nil {
		return nil, err
	}
	return entries, addRoots(entries, rows, smallID)
}

// addRoots completes the entries from rows. small returns the id that a mount has in the
// rows; an error of it is that of a mount that has gone.
func addRoots(entries []Entry, rows []row, small func(id uint64) (uint64, error)) error {
	for i, e := range entries {
		if !e.lacksRoot() {
			continue
		}
		id, err := small(e.ID)
		if missing(err) {
			continue
		}
		if err != nil {
			return os.NewSyscallError("statmount", err)
		}
		if at := slices.IndexFunc(rows, func(r row) bool { return r.id == id }); at >= 0 {
			entries[i].Source, entries[i].Root = rows[at].source, rows[at].root
		}
	}
	return nil
}
