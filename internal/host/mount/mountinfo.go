package mount

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// row is one line of /proc/self/mountinfo (proc_pid_mountinfo(5)). Its ids are the
// kernel's small ones, which are reused.
type row struct {
	id, parent   uint64
	dev          uint64
	root, path   string
	options      []string
	shared       bool
	fsType       string
	source       string
	superOptions []string
}

func (r row) entry() Entry {
	return Entry{
		Path: r.path, Root: r.root, FSType: r.fsType, Source: r.source, Dev: r.dev, Shared: r.shared,
		ReadOnly: slices.Contains(r.options, "ro") || slices.Contains(r.superOptions, "ro"),
	}
}

// readMountinfo reads and parses the whole table.
func (k *Kernel) readMountinfo() ([]row, error) {
	data, err := k.mountinfo()
	if err != nil {
		return nil, err
	}
	return parseMountinfo(data)
}

// mountinfo returns the text of the table. Kernels before 5.8 may skip lines if the table
// changes between two reads; there it reads until two texts are equal.
func (k *Kernel) mountinfo() ([]byte, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	for tries := 0; err == nil && !k.has(MountRoot) && tries < maxTableReads; tries++ {
		var again []byte
		if again, err = os.ReadFile("/proc/self/mountinfo"); bytes.Equal(again, data) {
			break
		}
		data = again
	}
	return data, err
}

// maxTableReads limits the reads of a table that keeps changing.
const maxTableReads = 10

func parseMountinfo(data []byte) ([]row, error) {
	var rows []row
	for n := 1; len(data) > 0; n++ {
		line, rest, _ := bytes.Cut(data, []byte("\n"))
		data = rest
		r, err := parseRow(string(line))
		if err != nil {
			return nil, fmt.Errorf("mountinfo line %d: %w", n, err)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// parseRow parses "id parent major:minor root point options [tag]... - type source
// super-options". A source may be empty, so it splits at every single space.
func parseRow(line string) (row, error) {
	var r row
	fields := strings.Split(line, " ")
	sep := -1
	for i := 6; i < len(fields); i++ {
		if fields[i] == "-" {
			sep = i
			break
		}
		r.shared = r.shared || strings.HasPrefix(fields[i], "shared:")
	}
	if sep < 0 || len(fields) < sep+4 {
		return row{}, fmt.Errorf("not a line of mountinfo, with %d fields: %q", len(fields), line)
	}
	var err error
	if r.id, err = strconv.ParseUint(fields[0], 10, 64); err != nil {
		return row{}, fmt.Errorf("mount id: %w", err)
	}
	if r.parent, err = strconv.ParseUint(fields[1], 10, 64); err != nil {
		return row{}, fmt.Errorf("parent id: %w", err)
	}
	if r.dev, err = parseDevice(fields[2]); err != nil {
		return row{}, err
	}
	r.root, r.path = unescape(fields[3]), unescape(fields[4])
	r.options = strings.Split(fields[5], ",")
	r.fsType, r.source = unescape(fields[sep+1]), unescape(fields[sep+2])
	r.root = rootOf(r.fsType, r.root, r.source)
	r.superOptions = strings.Split(strings.Join(fields[sep+3:], " "), ",")
	return r, nil
}

// unescape decodes the kernel's \ooo for space, tab, newline, backslash and #.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b = append(b, byte(v))
				i += 3
				continue
			}
		}
		b = append(b, s[i])
	}
	return string(b)
}
