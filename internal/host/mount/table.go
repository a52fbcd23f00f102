package mount

// Row is one line of a process's mount table, with the kernel's small ids, which are
// reused after an unmount.
type Row struct {
	ID, Parent uint64
	// Dev is the file system's device as major<<32|minor.
	Dev uint64
	// Root is the path within its file system that appears at Path; of nfs, the path on the
	// server.
	Root string
	// Path is the mount point, relative to the process's root directory.
	Path           string
	FSType, Source string
}

// ParseTable parses the text of /proc/PID/mountinfo (proc_pid_mountinfo(5)) and returns
// its rows, each after that of the mount that it is mounted on.
func ParseTable(text []byte) ([]Row, error) {
	rows, err := parseMountinfo(text)
	if err != nil {
		return nil, err
	}
	sortByDepth(rows, func(r row) (uint64, uint64) { return r.id, r.parent })
	out := make([]Row, len(rows))
	for i, r := range rows {
		out[i] = Row{ID: r.id, Parent: r.parent, Dev: r.dev, Root: r.root, Path: r.path, FSType: r.fsType, Source: r.source}
	}
	return out, nil
}
