package mount

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/csi-volmgr/csi-volmgr/internal/host/pathname"
)

// Unreached returns why mounts that process pid makes below dir do not appear in this
// process's mount namespace, or "" if they do. The two see different mounts of one
// directory if the process runs in a container that mounts dir without mountPropagation:
// Bidirectional.
func Unreached(pid int, dir string) (why string, err error) {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	theirs, err := os.Readlink(filepath.Join(proc, "ns/mnt"))
	if err != nil {
		return "", fmt.Errorf("mount namespace of process %d: %w", pid, err)
	}
	ours, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return "", fmt.Errorf("mount namespace of this process: %w", err)
	}
	if theirs == ours {
		return "", nil
	}
	if same, err := sameDirectory(filepath.Join(proc, "root", dir), dir); err != nil || !same {
		return fmt.Sprintf("process %d of the driver runs in another mount namespace, and %s there is not this node's "+
			"directory", pid, dir), nil
	}
	from, err := propagationOf(filepath.Join(proc, "mountinfo"), dir)
	if err != nil {
		return "", err
	}
	to, err := propagationOf("/proc/self/mountinfo", dir)
	if err != nil {
		return "", err
	}
	what := ""
	switch {
	case from.shared != "" && (from.shared == to.shared || from.shared == to.master):
		return "", nil
	case to.shared == "" && to.master == "":
		return fmt.Sprintf("process %d of the driver runs in another mount namespace, and %s is on a private mount on this "+
			"node (%s)", pid, dir, to.path), nil
	case from.shared != "":
		what = "is shared, but not with this node"
	case from.master != "":
		what = "receives the host's mounts and does not propagate its own"
	default:
		what = "is private"
	}
	return fmt.Sprintf("process %d of the driver runs in another mount namespace, and its mount of %s (%s) %s", pid, dir,
		from.path, what), nil
}

func sameDirectory(a, b string) (bool, error) {
	x, err := os.Stat(a)
	if err != nil {
		return false, err
	}
	y, err := os.Stat(b)
	if err != nil {
		return false, err
	}
	xs, ok := x.Sys().(*syscall.Stat_t)
	ys, also := y.Sys().(*syscall.Stat_t)
	return ok && also && xs.Dev == ys.Dev && xs.Ino == ys.Ino, nil
}

// propagation is a mount point and the peer groups of its mount.
type propagation struct {
	path string
	groups
}

// propagationOf returns the propagation of the mount that holds dir, by the given mount
// table file.
func propagationOf(table, dir string) (propagation, error) {
	data, err := os.ReadFile(table)
	if err != nil {
		return propagation{}, err
	}
	var found propagation
	for line := range bytes.Lines(data) {
		text := strings.TrimSuffix(string(line), "\n")
		r, err := parseRow(text)
		if err != nil {
			return propagation{}, fmt.Errorf("%s: %w", table, err)
		}
		if len(r.path) < len(found.path) || !pathname.Within(dir, r.path) {
			continue
		}
		found = propagation{path: r.path, groups: parseGroups(text)} // of two at one path, the later is on top
	}
	return found, nil
}
