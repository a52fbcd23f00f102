package holders

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/host/pathname"
)

// The kernel shows a file of a detached mount with a path that is relative to that mount's root, and shows neither the
// mount's root nor its device. The file's own device tells which file system it is on. Where several volumes are on one
// file system (directories of a disk, exports of a server, btrfs subvolumes), its handle tells which of them has it:
// opened through the volume's mount, the file has a path below the mount point only if it is in the volume.

// inode names a file of the node.
type inode struct{ dev, number uint64 }

// candidate is a file of a detached mount that is on the same file system as a volume in question.
type candidate struct {
	pid    int
	use    Use
	mount  uint64 // the small id of its mount; 0 if unknown
	file   inode
	handle unix.FileHandle
	sized  bool // handle is known
}

// addCandidates notes which files behind the links are on a file system in question, and reports whether any is. The
// mount of each is in no table that its process or this one sees.
func (s *search) addCandidates(ctx context.Context, pid int, links []link) bool {
	if len(links) == 0 || pid == os.Getpid() {
		return false
	}
	found, err := bounded(ctx, s.f, strconv.Itoa(pid)+ofDetached, func() (found []candidate) {
		for _, l := range links {
			if c, is := s.candidate(l); is {
				c.pid = pid
				found = append(found, c)
			}
		}
		return found
	})
	if err != nil {
		s.addUnread(pid, fmt.Sprintf("a file of a mount that was unmounted lazily: %v", err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loose = append(s.loose, found...)
	return len(found) > 0
}

// candidate asks the kernel for what it has in memory about the file behind a link.
func (s *search) candidate(l link) (c candidate, is bool) {
	fd, err := unix.Open(l.proc, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return c, false // it was closed, or the process has ended
	}
	defer unix.Close(fd)
	var st unix.Statx_t
	if unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE|unix.STATX_INO, &st) != nil {
		return c, false
	}
	c.use, c.mount = Use{Kind: l.kind, Path: l.text, Detached: true}, l.mount
	c.file = inode{device(st.Dev_major, st.Dev_minor), st.Ino}
	if st.Mode&unix.S_IFMT == unix.S_IFBLK && slices.Contains(s.blocks, device(st.Rdev_major, st.Rdev_minor)) {
		c.use.Kind = "device"
		return c, true
	}
	c.handle, _, err = unix.NameToHandleAt(fd, "", unix.AT_EMPTY_PATH)
	c.sized = err == nil
	return c, slices.ContainsFunc(s.trees, c.mayBeIn)
}

// mayBeIn reports whether the file is on the tree's file system. Each subvolume of btrfs has a device of its own, which
// no mount table shows.
func (c candidate) mayBeIn(t tree) bool {
	return t.mounted && (c.file.dev == t.dev || t.fsType == "btrfs" && c.sized && ofBtrfs(c.handle.Type()))
}

// ofBtrfs reports whether a file handle is one of btrfs (the kernel's enum fid_type).
func ofBtrfs(handle int32) bool { return handle >= 0x4d && handle <= 0x4f }

// addDetached adds the candidates that are in a tree in question, and those that may be.
func (s *search) addDetached(ctx context.Context) {
	var held, rest []candidate
	for _, c := range s.loose {
		on, elsewhere := s.tableOfThird(c)
		switch {
		case c.use.Kind == "device":
			held = append(held, c)
		case !elsewhere:
			rest = append(rest, c)
		case on.matches(c.use.Path, c.mount):
			c.use.Detached = false
			held = append(held, c)
		}
	}
	for _, t := range s.trees {
		var of []candidate
		for _, c := range rest {
			if c.mayBeIn(t) {
				of = append(of, c)
			}
		}
		if len(of) == 0 {
			continue
		}
		places, err := patiently(ctx, s, "detached "+t.path, func() []placement { return place(t, of) })
		for i, c := range of {
			where := unknown
			if err == nil {
				where = places[i]
			}
			if where == unknown && t.isWhole() {
				where = inside
			}
			if c.use.Unsure = where == unknown; where != outside {
				held = append(held, c)
			}
		}
	}
	s.addHeld(ctx, held)
}

// tableOfThird returns the table of the namespace that has the candidate's mount, if one has: its process has got the
// file from there, as a container has files of its engine's. The kernel shows the path that the file has there.
func (s *search) tableOfThird(c candidate) (on table, found bool) {
	for _, t := range s.tables {
		if r, known := t.byID[c.mount]; known && pathname.Within(t.localPath(c.use.Path), r.Path) {
			return t, true
		}
	}
	return table{}, false
}

// addHeld adds the uses of the candidates to their processes. A process without any left may still name the mount.
func (s *search) addHeld(ctx context.Context, held []candidate) {
	uses := map[int][]Use{}
	for _, c := range s.loose {
		uses[c.pid] = nil
	}
	for _, c := range held {
		uses[c.pid] = append(uses[c.pid], c.use)
	}
	for pid, more := range uses {
		at := slices.IndexFunc(s.found.Processes, func(p Process) bool { return p.PID == pid })
		switch {
		case at >= 0:
			p := &s.found.Processes[at]
			p.Uses, p.More = limited(append(p.Uses, more...), p.More)
		case len(more) > 0:
			s.addProcess(pid, more)
		default:
			s.addNamed(ctx, pid)
		}
	}
}

// placement says whether a file is in a tree.
type placement int

const (
	unknown placement = iota
	inside
	outside
)

// isWhole reports whether every file of the tree's file system is in the tree. The kernel shows each export of an NFS
// server as a whole, and gives several of them one device.
func (t tree) isWhole() bool { return t.root == "/" && !strings.HasPrefix(t.fsType, "nfs") }

// place finds out which files are in the tree, by their handles. It opens the root of the volume. It does not do
// so for FUSE, whose server would be asked: a process with such a request in flight cannot be killed.
func place(t tree, files []candidate) []placement {
	places := make([]placement, len(files))
	if strings.HasPrefix(t.fsType, "fuse") {
		return places
	}
	root, err := openRoot(t)
	if err != nil {
		return places
	}
	defer unix.Close(root)
	for i, c := range files {
		if c.sized {
			places[i] = c.placeIn(t, root)
		}
	}
	return places
}

// openRoot opens the root of the tree's mount. Another mount may be over it, of a server that does not answer: it is
// looked at without asking its file system.
func openRoot(t tree) (int, error) {
	at, err := unix.Open(t.path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(at)
	self := "/proc/self/fd/" + strconv.Itoa(at)
	info, _ := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(at))
	if field(info, "mnt_id:", 10) != t.id {
		return -1, fmt.Errorf("%s is below another mount", t.path)
	}
	return unix.Open(self, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// placeIn finds out whether the file is in the tree, whose root is open.
func (c candidate) placeIn(t tree, root int) placement {
	fd, err := unix.OpenByHandleAt(root, c.handle, unix.O_PATH|unix.O_CLOEXEC)
	if err != nil {
		return unknown
	}
	defer unix.Close(fd)
	var st unix.Statx_t
	if unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_INO, &st) != nil {
		return unknown
	}
	if c.file != (inode{device(st.Dev_major, st.Dev_minor), st.Ino}) {
		return outside // of another file system, on which this handle has a meaning, too
	}
	path, shown := readLink("/proc/self/fd/" + strconv.Itoa(fd))
	switch {
	case !shown:
		return unknown
	case pathname.Within(path, t.path):
		return inside
	}
	return outside
}

// mountOf returns the small id of the mount of the file behind a link; 0 if unknown. It does not ask the file system.
func (f *Finder) mountOf(link string) uint64 {
	fd, err := unix.Open(link, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	info, _ := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	return field(info, "mnt_id:", 10)
}

// device returns a device number in the form of [mount.Row].
func device(major, minor uint32) uint64 { return mount.DeviceOf(unix.Mkdev(major, minor)) }
