package mount

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/host/pathname"
)

// BusyError says what keeps a mount busy, as far as that could be found.
type BusyError struct {
	// Mounts are the mount points below it.
	Mounts []string
	// Holders have something on it open, [maxHolders] at most.
	Holders []Holder
	Err     error
}

// Holder is a process or a loop device that has a file on a mount open.
type Holder struct {
	PID  int    // 0 for a loop device
	Name string // "postgres", "loop3"
	Path string // the file or directory
}

func (h Holder) String() string {
	if h.PID == 0 {
		return fmt.Sprintf("%s (%s)", h.Name, h.Path)
	}
	return fmt.Sprintf("%s (pid %d, %s)", h.Name, h.PID, h.Path)
}

func (e *BusyError) Error() string {
	var b strings.Builder
	b.WriteString(e.Err.Error())
	if len(e.Mounts) > 0 {
		b.WriteString("; mounted below it: " + strings.Join(e.Mounts, ", "))
	}
	for i, h := range e.Holders {
		b.WriteString([]string{"; in use by ", ", "}[min(i, 1)])
		b.WriteString(h.String())
	}
	return b.String()
}

func (e *BusyError) Unwrap() error { return e.Err }

// maxHolders and maxListed limit what a BusyError lists.
const (
	maxHolders = 8
	maxListed  = 8
)

// explainBusy finds what uses target. It reads /proc and /sys only.
func (k *Kernel) explainBusy(ctx context.Context, target string, cause error) error {
	busy := &BusyError{Err: cause}
	path, err := k.canonical(target)
	if err != nil {
		return busy
	}
	entries, err := k.List(ctx, target)
	if err != nil {
		return busy
	}
	for _, e := range entries {
		if e.Path != path && len(busy.Mounts) < maxListed {
			busy.Mounts = append(busy.Mounts, e.Path)
		}
	}
	busy.Holders = holders(ctx, path)
	return busy
}

// holders returns the processes and loop devices that have a file at or below path open.
func holders(ctx context.Context, path string) []Holder {
	var found []Holder
	backing, _ := filepath.Glob("/sys/block/loop*/loop/backing_file") // the pattern is valid
	for _, file := range backing {
		data, err := os.ReadFile(file)
		if on := strings.TrimSuffix(string(data), "\n"); err == nil && pathname.Within(on, path) {
			found = append(found, Holder{Name: strings.Split(file, "/")[3], Path: on})
		}
	}
	processes, _ := os.ReadDir("/proc") // none if it cannot be read
	for _, p := range processes {
		if len(found) >= maxHolders || ctx.Err() != nil {
			break
		}
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		if file, ok := openBelow(pid, path); ok {
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)) // "" if it has ended
			found = append(found, Holder{PID: pid, Name: strings.TrimSpace(string(name)), Path: file})
		}
	}
	return found
}

// openBelow returns a path at or below path that a process has open. It only reads links
// in /proc, whose text the kernel knows without asking the storage.
func openBelow(pid int, path string) (string, bool) {
	proc := fmt.Sprintf("/proc/%d", pid)
	links := []string{proc + "/cwd", proc + "/root", proc + "/exe"}
	if fds, err := os.ReadDir(proc + "/fd"); err == nil {
		for _, fd := range fds {
			links = append(links, proc+"/fd/"+fd.Name())
		}
	}
	for _, link := range links {
		if file, err := os.Readlink(link); err == nil && pathname.Within(file, path) {
			return file, true
		}
	}
	return "", false
}
