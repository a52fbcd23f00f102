package ownership

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/beneath"
)

const (
	// maxDepth bounds the descriptors that one walk holds. A deeper tree was probably
	// made to obstruct the walk.
	maxDepth = 512
	// maxErrors is how many failures a walk reports by name; it only counts the others.
	maxErrors = 8
	// namesPerRead bounds the memory for one directory.
	namesPerRead = 1024
	// walkers is the number of directories that one walk reads at once. Each file costs
	// two or three system calls, most waiting for the disk or a server.
	walkers = 8
)

const (
	writeBits = 0o660
	readBits  = 0o440
	// dirBits let the group enter a directory, and make new files inherit the group.
	dirBits = 0o110 | unix.S_ISGID
	allBits = 0o7777
)

// Options are the wanted group and mode bits. GID is the group's ID.
type Options struct {
	GID int64
	// ReadOnly lets the group read (0440) but not write (0660).
	ReadOnly bool
	// OnRootMismatch skips the walk if the root has the group and bits already
	// (fsGroupChangePolicy OnRootMismatch).
	OnRootMismatch bool
	// SkipLinked leaves regular files with several names alone. Set it if the tree
	// shares its file system with files that are not the pod's, since a hard link to
	// such a file would give that file away.
	SkipLinked bool
	// Each, if set, is called after each inspected file and directory, from several
	// goroutines.
	Each func()
}

// Mode returns the permission bits, including setuid, setgid and sticky, that a file
// with the given mode has after the walk.
func (o Options) Mode(mode uint32, dir bool) uint32 {
	bits := uint32(writeBits)
	if o.ReadOnly {
		bits = readBits
	}
	if dir {
		bits |= dirBits
	}
	return mode&allBits | bits
}

// Matches reports whether the directory dir itself has the group and at least the mode
// bits of o.
func (o Options) Matches(dir *os.File) (bool, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return false, &os.PathError{Op: "stat", Path: dir.Name(), Err: err}
	}
	return o.matches(&st), nil
}

func (o Options) matches(st *unix.Stat_t) bool {
	have := st.Mode & allBits
	return int64(st.Gid) == o.GID && have == o.Mode(have, st.Mode&unix.S_IFMT == unix.S_IFDIR)
}

// Apply gives dir and everything below it to the group. It continues after a failure
// and returns the first few failures with the count of all, or the cause of ctx's end.
// If another attempt may mend some failures, it returns only those. It may be repeated
// and then changes only what is not right yet. It changes dir itself last, and not if
// another attempt may get further, so that an incomplete call does not look complete.
func Apply(ctx context.Context, dir *os.File, o Options) error {
	if o.GID < 0 || o.GID >= 1<<32-1 {
		return fmt.Errorf("set group of %s: %d is not a group id", dir.Name(), o.GID)
	}
	if o.OnRootMismatch {
		if ok, err := o.Matches(dir); err != nil || ok {
			return err
		}
	}
	w := walk{o: o, slots: make(chan struct{}, walkers-1)}
	if err := w.dir(ctx, dir, ".", 0); err != nil {
		return fmt.Errorf("set group of %s: %w", dir.Name(), err)
	}
	if w.failed > 0 {
		return fmt.Errorf("set group of %s: %d files failed: %w", dir.Name(), w.failed, errors.Join(w.errs...))
	}
	return nil
}

// walk is the state of one Apply.
type walk struct {
	o     Options
	slots chan struct{} // one per directory that another goroutine walks

	mu sync.Mutex // guards the fields below
	// mendable is true if another attempt may get further: not all failures are lasting.
	mendable bool
	errs     []error // only those that are not lasting, if there are any
	failed   int
}

func (w *walk) fail(name, op string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed++
	lasts := isLasting(err)
	if !lasts && !w.mendable {
		w.mendable, w.errs = true, nil
	}
	if lasts != w.mendable && len(w.errs) < maxErrors {
		w.errs = append(w.errs, &os.PathError{Op: op, Path: name, Err: err})
	}
}

// isLasting reports whether another attempt would fail in the same way: the file is
// immutable, the file system has no groups or is read-only, a server squashes root (only
// there root gets EACCES), or the tree is too deep.
func isLasting(err error) bool {
	for _, lasting := range []error{unix.EPERM, unix.EACCES, unix.EROFS, unix.EOPNOTSUPP, unix.ELOOP} {
		if errors.Is(err, lasting) {
			return true
		}
	}
	return false
}

func (w *walk) isMendable() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mendable
}

// dir changes the content of f, then f. name is for messages. It returns only errors
// that end the whole walk.
func (w *walk) dir(ctx context.Context, f *os.File, name string, depth int) error {
	below := &group{}
	err := w.entries(ctx, place{f, name, depth, below})
	// Wait even if the walk ends early, so that no goroutine is left in the tree.
	if other := below.wait(); err == nil {
		err = other
	}
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	if depth == 0 && w.isMendable() {
		return nil // the root would make the tree look complete
	}
	w.change(int(f.Fd()), name)
	return nil
}

// place is a directory being walked, with the goroutines that walk directories below
// it.
type place struct {
	dir   *os.File
	name  string
	depth int
	below *group
}

// group waits for goroutines and keeps one of their errors.
type group struct {
	wg  sync.WaitGroup
	mu  sync.Mutex
	err error
}

func (g *group) run(f func() error) {
	g.wg.Go(func() {
		if err := f(); err != nil {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.err = err
		}
	})
}

func (g *group) wait() error {
	g.wg.Wait()
	return g.err
}

func (w *walk) entries(ctx context.Context, p place) error {
	f, name, depth := p.dir, p.name, p.depth
	if depth > maxDepth {
		w.fail(name, "enter", unix.ELOOP)
		return nil
	}
	for {
		names, err := f.Readdirnames(namesPerRead)
		for _, n := range names {
			if err := w.entry(ctx, p, path.Join(name, n)); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, unix.ENOENT) { // ENOENT: the directory was removed meanwhile
			return nil
		}
		if err != nil {
			w.fail(name, "read", err)
			return nil
		}
	}
}

func (w *walk) entry(ctx context.Context, p place, name string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	fd, err := openEntry(int(p.dir.Fd()), path.Base(name), unix.O_PATH)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EXDEV) {
		return nil // removed meanwhile, or a mount point
	}
	if err != nil {
		w.fail(name, "open", err)
		return nil
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		w.fail(name, "stat", err)
		return nil
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		w.change(fd, name)
		return nil
	}
	// "." of the descriptor is the directory that was inspected, even if its name now
	// leads elsewhere.
	in, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		w.fail(name, "open", err)
		return nil
	}
	sub := os.NewFile(uintptr(in), name)
	select {
	case w.slots <- struct{}{}:
		p.below.run(func() error {
			defer func() { <-w.slots }()
			defer sub.Close()
			return w.dir(ctx, sub, name, p.depth+1)
		})
		return nil
	default: // all walkers are busy, and waiting for one could deadlock
		defer sub.Close()
		return w.dir(ctx, sub, name, p.depth+1)
	}
}

// openEntry opens the entry name of parent without following a symbolic link. It fails
// with EXDEV if something is mounted there.
func openEntry(parent int, name string, flags uint64) (int, error) {
	return beneath.Open(parent, name, &unix.OpenHow{
		Flags:   flags | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// change sets the group and mode of the file behind fd, which may be an O_PATH
// descriptor.
func (w *walk) change(fd int, name string) {
	if w.o.Each != nil {
		defer w.o.Each()
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		w.fail(name, "stat", err)
		return
	}
	kind := st.Mode & unix.S_IFMT
	if w.o.SkipLinked && kind == unix.S_IFREG && st.Nlink > 1 {
		return
	}
	if int64(st.Gid) != w.o.GID {
		if err := unix.Fchownat(fd, "", -1, int(w.o.GID), unix.AT_EMPTY_PATH); err != nil {
			w.fail(name, "chown", err)
			return
		}
	}
	if kind == unix.S_IFLNK || w.o.matches(&st) {
		return
	}
	// chmod follows chown, which clears the set-id bits.
	if err := chmod(fd, w.o.Mode(st.Mode, kind == unix.S_IFDIR)); err != nil {
		w.fail(name, "chmod", err)
	}
}

// chmod changes the mode of the file behind fd. fchmod refuses an O_PATH descriptor,
// and fchmodat2 exists only since Linux 6.6. Before that, or where a container engine's
// filter refuses it (EPERM), the descriptor's path in /proc leads to the same file.
func chmod(fd int, mode uint32) error {
	err := unix.Fchmodat(fd, "", mode, unix.AT_EMPTY_PATH)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode)
	}
	return err
}
