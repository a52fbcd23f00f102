package holders

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
)

// errGone means that a process ended during its inspection.
var errGone = errors.New("the process has ended")

// inspect inspects one process and adds it to the report.
func (s *search) inspect(ctx context.Context, pid int) {
	if ctx.Err() != nil {
		return
	}
	id := strconv.Itoa(pid)
	t, own, err := s.tableOf(id)
	if err != nil {
		if !ended(err) && !kernelThread(err) {
			s.addUnread(pid, err.Error())
		}
		return
	}
	if !own {
		s.addNamespace(id, pid, t)
	}
	if len(t.relevant) == 0 && len(s.blocks) == 0 {
		s.addNamed(ctx, pid)
		return
	}
	var uses []Use
	for _, kind := range []string{"cwd", "root", "exe"} {
		if path, ok := readLink(s.f.proc(id, kind)); ok && t.matches(path, 0) && (kind != "root" || path != "/") {
			uses = append(uses, Use{kind, path})
		}
	}
	uses = append(uses, s.openFiles(id, t)...)
	mapped, err := s.mappedFiles(ctx, pid, t)
	if err != nil && !ended(err) {
		s.addUnread(pid, err.Error())
	}
	uses = append(uses, mapped...)
	if len(uses) > 0 {
		s.addProcess(pid, uses)
	} else {
		s.addNamed(ctx, pid)
	}
}

// addNamed reports a process that names a path in question in its command line, except
// processes of this program: their command lines ask the same question.
func (s *search) addNamed(ctx context.Context, pid int) {
	id := strconv.Itoa(pid)
	if exe, err := os.Readlink(s.f.proc(id, "exe")); err != nil || exe == s.ownExe {
		return // a kernel thread, or a process that has ended
	}
	text, err := s.f.readWithPatience(ctx, pid, "cmdline")
	if err != nil {
		return // mappedFiles reports a locked memory map
	}
	for arg := range strings.SplitSeq(text, "\x00") {
		for _, path := range s.q.Paths {
			if namesPath(arg, path) {
				// only the path: the rest of the argument may be secret
				p := Process{PID: pid, Name: s.f.name(pid), Container: s.f.containerOf(pid), Uses: []Use{{"argument", path}}}
				s.mu.Lock()
				if len(s.found.Named) < maxProcesses {
					s.found.Named = append(s.found.Named, p)
				}
				s.mu.Unlock()
				return
			}
		}
	}
}

// namesPath reports whether arg contains path or something below it.
func namesPath(arg, path string) bool {
	path = strings.TrimRight(path, "/")
	if path == "" {
		return false // every path is below it
	}
	for rest := arg; ; {
		_, after, found := strings.Cut(rest, path)
		switch {
		case !found:
			return false
		case after == "" || strings.ContainsRune("/,: '\"", rune(after[0])):
			return true
		}
		rest = after
	}
}

// tableOf returns the mount table that a process sees. Processes with the same namespace
// and root directory share a table.
func (s *search) tableOf(id string) (t table, own bool, err error) {
	ns, err := os.Readlink(s.f.proc(id, "ns", "mnt"))
	if err != nil {
		return table{}, false, err
	}
	if ns == s.ownNS { // the table of a chrooted process would lack what is outside its root
		return s.ownTable, true, nil
	}
	root, _ := readLink(s.f.proc(id, "root"))
	key := ns + " " + root
	s.mu.Lock()
	t, known := s.tables[key]
	s.mu.Unlock()
	if known {
		return t, false, nil
	}
	rows, err := s.f.readTable(id)
	if err != nil {
		return table{}, false, err
	}
	t = newTable(rows, root, s.trees, s.q.Devices)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tables[key] = t
	return t, false, nil
}

// kernelThread reports whether err is typical of a kernel thread or of a process that is
// ending: neither has mounts.
func kernelThread(err error) bool { return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ESRCH) }

// addNamespace reports that another mount namespace has a copy.
func (s *search) addNamespace(id string, pid int, t table) {
	mounts := t.mounts()
	if len(mounts) == 0 {
		return
	}
	ns, err := os.Readlink(s.f.proc(id, "ns", "mnt"))
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if had, known := s.spaces[ns]; known && had.PID <= pid {
		return
	}
	s.spaces[ns] = Namespace{ID: ns, PID: pid, Name: s.f.name(pid), Container: s.f.containerOf(pid), Mounts: mounts}
}

// openFiles returns the open files of a process that are in question.
func (s *search) openFiles(id string, t table) []Use {
	fds, err := os.ReadDir(s.f.proc(id, "fd"))
	if err != nil {
		return nil // the process has ended
	}
	var uses []Use
	for _, fd := range fds {
		path, ok := readLink(s.f.proc(id, "fd", fd.Name()))
		switch {
		case !ok:
		case t.mayMatch(path) && t.matches(path, s.mountOf(id, fd.Name())):
			uses = append(uses, Use{"fd", path})
		case len(s.blocks) > 0 && s.isDevice(id, fd.Name(), t, path):
			uses = append(uses, Use{"device", path})
		}
	}
	return uses
}

// mountOf returns the small id of the mount of an open file; 0 if unknown.
func (s *search) mountOf(id, fd string) uint64 {
	info, err := os.ReadFile(s.f.proc(id, "fdinfo", fd))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(info)) {
		if value, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			n, _ := strconv.ParseUint(strings.TrimSpace(value), 10, 64) // 0 if invalid
			return n
		}
	}
	return 0
}

// isDevice reports whether an open file is one of the block devices in question. It calls
// stat only on file systems in memory, which cannot hang.
func (s *search) isDevice(id, fd string, t table, path string) bool {
	switch t.mountOf(t.localPath(path)).FSType {
	case "devtmpfs", "tmpfs", "ramfs":
	default:
		return false
	}
	var st unix.Stat_t
	if unix.Stat(s.f.proc(id, "fd", fd), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return false
	}
	return slices.Contains(s.blocks, mount.DeviceOf(st.Rdev))
}

// mappedFiles returns the files in question that a process has mapped into its memory.
func (s *search) mappedFiles(ctx context.Context, pid int, t table) ([]Use, error) {
	if len(t.relevant) == 0 {
		return nil, nil
	}
	text, err := s.f.readWithPatience(ctx, pid, "maps")
	if err != nil {
		return nil, err
	}
	var uses []Use
	for line := range strings.Lines(text) {
		at := strings.IndexByte(line, '/')
		if at < 0 {
			continue
		}
		path := strings.TrimSuffix(strings.TrimSuffix(line[at:], "\n"), " (deleted)")
		if use := (Use{"map", path}); t.matches(path, 0) && !slices.Contains(uses, use) {
			uses = append(uses, use)
		}
	}
	return uses, nil
}

// errLocked means that a process's memory map stays locked, by a thread that waits for
// storage.
var errLocked = errors.New("its memory map is locked while the process waits for storage that does not answer")

// readWithPatience reads a file of /proc/PID that waits for the process's memory lock. A read
// that takes too long is abandoned, at most one per process.
func (f *Finder) readWithPatience(ctx context.Context, pid int, name string) (string, error) {
	f.mu.Lock()
	if f.hung[pid] {
		f.mu.Unlock()
		return "", errLocked
	}
	if f.hung == nil {
		f.hung = map[int]bool{}
	}
	f.hung[pid] = true
	f.mu.Unlock()
	type answer struct {
		text []byte
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		text, err := os.ReadFile(f.proc(strconv.Itoa(pid), name))
		f.mu.Lock()
		delete(f.hung, pid)
		f.mu.Unlock()
		answers <- answer{text, err}
	}()
	patience := time.NewTimer(cmp.Or(f.Patience, mapsPatience))
	defer patience.Stop()
	select {
	case a := <-answers:
		if errors.Is(a.err, unix.ESRCH) {
			return "", errGone
		}
		return string(a.text), a.err
	case <-patience.C:
		return "", errLocked
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func (s *search) addProcess(pid int, uses []Use) {
	p := Process{PID: pid, Name: s.f.name(pid), Container: s.f.containerOf(pid), Uses: uses}
	if len(uses) > maxUses {
		p.Uses, p.More = uses[:maxUses], len(uses)-maxUses
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.found.Processes) < maxProcesses {
		s.found.Processes = append(s.found.Processes, p)
	}
}

func (s *search) addUnread(pid int, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found.Unread = append(s.found.Unread, Unread{PID: pid, Name: s.f.name(pid), Why: why})
}

// name returns the process's comm. Unlike its command line, that is not in the process's
// own memory, which may be locked.
func (f *Finder) name(pid int) string {
	comm, _ := os.ReadFile(f.proc(strconv.Itoa(pid), "comm")) // "" if it has ended
	return strings.TrimSpace(string(comm))
}

// readLink returns the target of a link in /proc if it is a path.
func readLink(path string) (string, bool) {
	text, err := os.Readlink(path)
	if err != nil || !strings.HasPrefix(text, "/") {
		return "", false
	}
	return strings.TrimSuffix(text, " (deleted)"), true
}
