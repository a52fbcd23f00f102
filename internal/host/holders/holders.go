// Package holders finds what holds a mount or a device: processes with files open, a
// working or root directory, a program or mapped memory on it; the containers of these
// processes; mount namespaces with a copy of the mount; loop devices and device-mapper
// devices on top of it.
//
// It owns nothing. It reads /proc and /sys.
//
// It compares what the kernel says about links and mount tables, and does not touch the file
// system in question, so a mount whose storage hangs cannot hang it. There are two
// exceptions, each in a goroutine that is abandoned after [mapsPatience]. The memory map of a
// process may be locked, while a page fault waits for storage. A file of a mount that was
// unmounted lazily has a path of no mount table: the search asks for its device and inode as
// the kernel has them in memory, and compares its place with the volume's (detached.go).
//
// Concurrency: many goroutines may use a [Finder].
package holders

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/host/pathname"
)

const (
	// mapsPatience is how long reading a process's mapped files, or looking at its files of
	// detached mounts, may take; it takes microseconds unless the process's memory lock is
	// held or storage does not answer.
	mapsPatience = 250 * time.Millisecond
	// workers is how many processes are inspected at once.
	workers = 8
	// maxProcesses and maxUses limit what a report lists.
	maxProcesses = 1000
	maxUses      = 8
)

// Query says what may be held.
type Query struct {
	// Paths are mount points or other absolute paths in this process's mount namespace.
	// Each stands for what is mounted or lies there, with everything below it on the same
	// file system.
	Paths []string
	// Devices are block devices as major<<32|minor.
	Devices []uint64
	// Own is a directory in this process's mount namespace, or "". Mounts below it belong to
	// the asker: the report lists neither them nor copies of them. A copy is on the same
	// directory of the same file system, and its path ends with the original's: the whole tree
	// of the host is mounted somewhere.
	Own string
	// Patience is how long the search waits in addition for what cannot be read at once: for all processes
	// together, and for each volume. It is for a question whose answer decides something.
	Patience time.Duration
}

// Report says what holds a volume, a path or a device.
type Report struct {
	// Mounts are its mount points in this process's namespace, sorted.
	Mounts []string `json:"mounts"`
	// Processes use it, sorted by process id, [maxProcesses] at most.
	Processes []Process `json:"processes"`
	// Named are processes that do not use it but have its path in their command lines.
	// They do not prevent an unmount; drivers of some FUSE file systems wait for them.
	Named []Process `json:"named,omitempty"`
	// Namespaces are the other mount namespaces that have a copy of the mount: it stays
	// in use there when it is unmounted here.
	Namespaces []Namespace `json:"namespaces"`
	// Devices are built on it: loop devices backed by a file on it, and device-mapper or
	// md devices on top of the block device.
	Devices []Device `json:"devices"`
	// Unread are processes that could not be fully inspected.
	Unread []Unread `json:"unread,omitempty"`
}

// Process is a process that uses it.
type Process struct {
	PID  int    `json:"pid"`
	Name string `json:"name"`
	// Container comes from its cgroup; zero if it is in none.
	Container Container `json:"container,omitzero"`
	// Uses are its first [maxUses] uses; More counts the rest.
	Uses []Use `json:"uses"`
	More int   `json:"more,omitempty"`
}

// Use is one way in which a process uses it.
type Use struct {
	// Kind is cwd, root, exe, fd, map or device; argument for processes in
	// [Report.Named].
	Kind string `json:"kind"`
	// Path is the file as the process sees it.
	Path string `json:"path"`
	// Detached: the file's mount is in no mount table, since it was unmounted lazily
	// (umount -l) while the file was in use. Path is then relative to the root of that mount.
	Detached bool `json:"detached,omitempty"`
	// Unsure: the file is of the same file system, and may be of another volume on it.
	Unsure bool `json:"unsure,omitempty"`
}

// Namespace is another mount namespace.
type Namespace struct {
	// ID is its kernel number, as /proc/PID/ns/mnt shows it.
	ID string `json:"id"`
	// PID and Name identify one process in it.
	PID       int       `json:"pid"`
	Name      string    `json:"name"`
	Container Container `json:"container,omitzero"`
	// Mounts are the mount points of its copies, sorted.
	Mounts []string `json:"mounts"`
}

// Device is a block device built on the file or device in question.
type Device struct {
	Name string `json:"name"` // "loop3", "dm-1"
	// Kind is loop, device-mapper, or holder for any other.
	Kind string `json:"kind"`
	// Of is the file or device below it; for a device-mapper device also its own name.
	Of string `json:"of"`
}

// Unread is a process that could not be fully inspected.
type Unread struct {
	PID  int    `json:"pid"`
	Name string `json:"name"`
	Why  string `json:"why"`
}

// Held reports whether anything holds it.
func (r Report) Held() bool {
	return len(r.Processes)+len(r.Namespaces)+len(r.Devices) > 0
}

// Finder finds holders. The zero value reads /proc and /sys.
type Finder struct {
	// Proc and Sys replace /proc and /sys if set.
	Proc, Sys string
	// Patience is how long to wait for one process's memory map; 0 means [mapsPatience].
	Patience time.Duration

	mu sync.Mutex // guards hung
	// hung has what is still being read; each is closed when it has been.
	hung map[string]<-chan struct{}
}

func (f *Finder) proc(elem ...string) string {
	return filepath.Join(append([]string{cmp.Or(f.Proc, "/proc")}, elem...)...)
}

func (f *Finder) sys(elem ...string) string {
	return filepath.Join(append([]string{cmp.Or(f.Sys, "/sys")}, elem...)...)
}

// Find inspects every process once. It returns an error if it cannot read the mount table
// or the list of processes, or if ctx ends before it has inspected all of them.
func (f *Finder) Find(ctx context.Context, q Query) (Report, error) {
	s, err := f.newSearch(q)
	if err != nil {
		return Report{}, fmt.Errorf("find who holds %s: %w", strings.Join(q.Paths, ", "), err)
	}
	entries, err := os.ReadDir(f.proc())
	if err != nil {
		return Report{}, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	next := make(chan int)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for pid := range next {
				s.inspect(ctx, pid)
			}
		})
	}
feed:
	for _, pid := range pids {
		select {
		case next <- pid:
		case <-ctx.Done():
			break feed
		}
	}
	close(next)
	wg.Wait()
	if ctx.Err() != nil {
		return Report{}, fmt.Errorf("find who holds %s: %w", strings.Join(q.Paths, ", "), context.Cause(ctx))
	}
	s.again(ctx)
	s.addDetached(ctx)
	s.addDevices()
	return s.report(), nil
}

// search is one Find under way.
type search struct {
	f        *Finder
	q        Query
	ownNS    string // this process's mount namespace
	ownExe   string // this process's program
	ownTable table  // this process's mount table
	trees    []tree
	blocks   []uint64
	ours     []spot // of the mounts below Query.Own

	mu      sync.Mutex // guards the fields below
	tables  map[string]table
	spaces  map[string]Namespace
	loose   []candidate
	inPlace map[inode]bool // mapped files that were found on a mount in a table
	found   Report
}

func (f *Finder) newSearch(q Query) (*search, error) {
	s := &search{
		f: f, q: q, blocks: slices.Clone(q.Devices), tables: map[string]table{}, spaces: map[string]Namespace{},
		inPlace: map[inode]bool{},
	}
	var err error
	if s.ownNS, err = os.Readlink(f.proc("self", "ns", "mnt")); err != nil {
		return nil, err
	}
	s.ownExe, _ = os.Readlink(f.proc("self", "exe")) // "" if unknown
	rows, err := f.readTable("self")
	if err != nil {
		return nil, err
	}
	for _, path := range q.Paths {
		if !filepath.IsAbs(path) {
			return nil, fmt.Errorf("%q is not an absolute path", path)
		}
		s.trees = append(s.trees, treesAt(rows, filepath.Clean(path))...)
	}
	for _, t := range s.trees {
		_, err := os.Lstat(f.sys("dev", "block", mount.DeviceText(t.dev)))
		if err == nil && t.mounted && !slices.Contains(s.blocks, t.dev) {
			s.blocks = append(s.blocks, t.dev)
		}
	}
	s.ownTable = newTable(rows, "", s.trees, s.q.Devices)
	s.ours = s.ownTable.spots(q.Own)
	s.found.Mounts = slices.DeleteFunc(s.ownTable.mounts(s.ours), func(p string) bool {
		return q.Own != "" && pathname.Within(p, q.Own)
	})
	return s, nil
}

func (s *search) report() Report {
	r := s.found
	for _, n := range s.spaces {
		r.Namespaces = append(r.Namespaces, n)
	}
	slices.SortFunc(r.Namespaces, func(a, b Namespace) int { return a.PID - b.PID })
	slices.SortFunc(r.Processes, func(a, b Process) int { return a.PID - b.PID })
	slices.SortFunc(r.Named, func(a, b Process) int { return a.PID - b.PID })
	slices.SortFunc(r.Unread, func(a, b Unread) int { return a.PID - b.PID })
	slices.SortFunc(r.Devices, func(a, b Device) int { return strings.Compare(a.Name, b.Name) })
	return r
}

// ended reports whether err means that a process has ended.
func ended(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, errGone)
}
