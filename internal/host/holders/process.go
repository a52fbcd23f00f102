package holders

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"

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
	if len(s.trees) == 0 && len(s.blocks) == 0 {
		s.addNamed(ctx, pid)
		return
	}
	var uses []Use
	var loose []link
	for _, l := range append(s.directories(ctx, pid), s.openFiles(pid)...) {
		on, known := s.tableWith(t, l.mount)
		switch {
		case known && on.matches(l.text, l.mount) && !l.isRoot():
			uses = append(uses, l.use())
		case known && l.kind == "fd" && len(s.blocks) > 0 && s.isDevice(l, on):
			uses = append(uses, Use{Kind: "device", Path: l.text})
		case !known:
			loose = append(loose, l)
		}
	}
	mapped, more, err := s.mappedFiles(ctx, pid, t)
	if err != nil && !ended(err) && len(t.relevant) > 0 {
		s.addUnread(pid, err.Error())
	}
	uses = append(uses, mapped...)
	detached := s.addCandidates(ctx, pid, append(loose, more...))
	switch {
	case len(uses) > 0:
		s.addProcess(pid, uses)
	case !detached:
		s.addNamed(ctx, pid)
	}
}

// link is a link in /proc/PID that leads to a file.
type link struct {
	kind string // of [Use]
	proc string // the path of the link
	text string // the path that it shows
	// mount is the small id of the file's mount; 0 if unknown.
	mount uint64
}

func (l link) use() Use { return Use{Kind: l.kind, Path: l.text} }

// isRoot reports whether l is the root directory of a process that has no other than its
// namespace's.
func (l link) isRoot() bool { return l.kind == "root" && l.text == "/" }

// tableWith returns the table that has the mount: t, or this process's own, since a file may
// come from there. A mount whose id is unknown is looked for in t, by paths.
func (s *search) tableWith(t table, mount uint64) (on table, known bool) {
	if _, known := t.byID[mount]; known || mount == 0 {
		return t, true
	}
	_, known = s.ownTable.byID[mount]
	return s.ownTable, known
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
				p := Process{PID: pid, Name: s.f.name(pid), Container: s.f.containerOf(pid)}
				p.Uses = []Use{{Kind: "argument", Path: path}}
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
	mounts := t.mounts(s.ours)
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

// directories returns the links of a process's working directory, root directory and program.
// Their mounts are unknown if that takes too long.
func (s *search) directories(ctx context.Context, pid int) []link {
	var links []link
	for _, kind := range []string{"cwd", "root", "exe"} {
		l := link{kind: kind, proc: s.f.proc(strconv.Itoa(pid), kind)}
		var ok bool
		if l.text, ok = readLink(l.proc); ok {
			links = append(links, l)
		}
	}
	ids, err := bounded(ctx, s.f, strconv.Itoa(pid)+ofDirectories, func() (ids []uint64) {
		for _, l := range links {
			ids = append(ids, s.f.mountOf(l.proc))
		}
		return ids
	})
	for i := range links {
		if err == nil {
			links[i].mount = ids[i]
		}
	}
	return links
}

// openFiles returns the links of the open files of a process.
func (s *search) openFiles(pid int) []link {
	id := strconv.Itoa(pid)
	fds, err := os.ReadDir(s.f.proc(id, "fd"))
	if err != nil {
		return nil // the process has ended
	}
	var links []link
	for _, fd := range fds {
		l := link{kind: "fd", proc: s.f.proc(id, "fd", fd.Name())}
		var ok bool
		if l.text, ok = readLink(l.proc); !ok {
			continue
		}
		info, _ := os.ReadFile(s.f.proc(id, "fdinfo", fd.Name())) // empty if it was closed
		if l.mount = field(info, "mnt_id:", 10); pid == os.Getpid() && field(info, "flags:", 8)&unix.O_PATH != 0 {
			continue // of a search: it holds nothing for long
		}
		links = append(links, l)
	}
	return links
}

// field returns a number in the text of /proc/PID/fdinfo/FD; 0 if it is not there.
func field(info []byte, name string, base int) uint64 {
	for line := range strings.Lines(string(info)) {
		if value, ok := strings.CutPrefix(line, name); ok {
			n, _ := strconv.ParseUint(strings.TrimSpace(value), base, 64) // 0 if invalid
			return n
		}
	}
	return 0
}

// isDevice reports whether an open file is one of the block devices in question. It calls
// stat only on file systems in memory, which cannot hang.
func (s *search) isDevice(l link, t table) bool {
	switch t.mountOf(t.localPath(l.text)).FSType {
	case "devtmpfs", "tmpfs", "ramfs":
	default:
		return false
	}
	var st unix.Stat_t
	if unix.Stat(l.proc, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return false
	}
	return slices.Contains(s.blocks, mount.DeviceOf(st.Rdev))
}

// mappedFiles returns the files in question that a process has mapped into its memory, and links to
// those on a mount that is in no table.
func (s *search) mappedFiles(ctx context.Context, pid int, t table) (uses []Use, loose []link, err error) {
	if len(s.trees) == 0 {
		return nil, nil, nil
	}
	text, err := s.f.readWithPatience(ctx, pid, "maps")
	if err != nil {
		return nil, nil, err
	}
	var doubtful []area
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		a := parseArea(line)
		if a.path == "" || seen[a.path] {
			continue
		}
		if seen[a.path] = true; t.matches(a.path, 0) {
			uses = append(uses, Use{Kind: "map", Path: a.path})
		} else if s.isDoubtful(a) {
			doubtful = append(doubtful, a)
		}
	}
	if len(doubtful) == 0 {
		return uses, nil, nil
	}
	links, err := bounded(ctx, s.f, strconv.Itoa(pid), func() (links []link) {
		for _, a := range doubtful {
			l := link{kind: "map", proc: s.f.proc(strconv.Itoa(pid), "map_files", a.name), text: a.path}
			l.mount = s.f.mountOf(l.proc)
			links = append(links, l)
		}
		return links
	})
	for i, l := range links {
		switch on, known := s.tableWith(t, l.mount); {
		case l.mount == 0: // the process has ended
		case known && on.matches(l.text, l.mount):
			uses = append(uses, l.use())
		case known:
			s.addInPlace(doubtful[i].file)
		default:
			loose = append(loose, l)
		}
	}
	if errors.Is(err, errHung) {
		err = errLocked
	}
	return uses, loose, err
}

// errLocked means that a process's memory map stays locked, by a thread that waits for
// storage.
var errLocked = errors.New("its memory map is locked while the process waits for storage that does not answer")

// readWithPatience reads a file of /proc/PID that waits for the process's memory lock. A read
// that takes too long is abandoned, at most one per process.
func (f *Finder) readWithPatience(ctx context.Context, pid int, name string) (string, error) {
	type answer struct {
		text []byte
		err  error
	}
	id := strconv.Itoa(pid)
	a, err := bounded(ctx, f, id, func() (a answer) {
		a.text, a.err = os.ReadFile(f.proc(id, name))
		return a
	})
	switch {
	case errors.Is(err, errHung):
		return "", errLocked
	case err != nil:
		return "", err
	case errors.Is(a.err, unix.ESRCH):
		return "", errGone
	}
	return string(a.text), a.err
}

func (s *search) addProcess(pid int, uses []Use) {
	p := Process{PID: pid, Name: s.f.name(pid), Container: s.f.containerOf(pid)}
	p.Uses, p.More = limited(uses, 0)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.found.Processes) < maxProcesses {
		s.found.Processes = append(s.found.Processes, p)
	}
}

// limited returns the first [maxUses] uses, and how many more there are besides the given number.
func limited(uses []Use, more int) ([]Use, int) {
	if len(uses) <= maxUses {
		return uses, more
	}
	return uses[:maxUses], more + len(uses) - maxUses
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
