package holders

import (
	"slices"
	"strconv"
	"strings"
)

// area is a line of /proc/PID/maps.
type area struct {
	name string // of its link in /proc/PID/map_files
	file inode
	path string // "" if no file is mapped
}

func parseArea(line string) area {
	at := strings.IndexByte(line, '/')
	if at < 0 {
		return area{}
	}
	a := area{path: strings.TrimSuffix(strings.TrimSuffix(line[at:], "\n"), " (deleted)")}
	fields := strings.Fields(line[:at]) // addresses, rights, offset, device, inode
	if len(fields) != 5 {
		return a
	}
	from, to, _ := strings.Cut(fields[0], "-")
	a.name = unpadded(from) + "-" + unpadded(to)
	major, minor, _ := strings.Cut(fields[3], ":")
	ma, _ := strconv.ParseUint(major, 16, 32) // the kernel writes no others
	mi, _ := strconv.ParseUint(minor, 16, 32)
	a.file.dev = device(uint32(ma), uint32(mi))
	a.file.number, _ = strconv.ParseUint(fields[4], 10, 64)
	return a
}

// unpadded returns an address as the names in map_files have it: without leading zeros.
func unpadded(address string) string {
	if short := strings.TrimLeft(address, "0"); short != "" {
		return short
	}
	return "0"
}

// isDoubtful reports whether an area is of a file on a file system in question that no process is known to have from a
// mount in a table. Where the volume is a directory of the host's disk, most programs and libraries are on that.
func (s *search) isDoubtful(a area) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	on := func(t tree) bool { return t.mounted && t.dev == a.file.dev }
	return !s.inPlace[a.file] && slices.ContainsFunc(s.trees, on)
}

// addInPlace notes that a process has the file from a mount in a table, and that it is not in question.
func (s *search) addInPlace(file inode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inPlace[file] = true
}
