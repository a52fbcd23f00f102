package payload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/intree/ownership"
	"github.com/csi-volmgr/csi-volmgr/pkg/mount"
)

const (
	current    = "..data"
	currentTmp = "..data_tmp"
	linkTmp    = "..link_tmp"
	// stamp names a set of files by the moment of its writing (UTC).
	stamp = "..2006_01_02_15_04_05.000000000"
	// dirMode is the mode of every directory of a set.
	dirMode = 0o755
)

// Set is what a directory shall hold.
type Set struct {
	Files Files
	// Dirs are directories that a container runtime mounts other volumes on: it
	// cannot make them itself in what is read-only. Paths are relative and clean.
	Dirs []string
	// FSGroup is the group that may read the files, or nil.
	FSGroup *int64
}

// Writer writes sets of files. Both fields must be set.
type Writer struct {
	Kernel *mount.Kernel
	// Now names a set. Two sets may be given the same moment.
	Now func() time.Time
}

// Written is what a Write did.
type Written struct {
	// Changed: the set was not there already.
	Changed bool
	// Left is how many replaced sets there are, which Sweep removes in their time.
	Left int
}

// Write makes dir hold exactly the set. The descriptor's name is the directory's
// absolute path. On an error the files are those from before, or the new ones:
// never a part. A writer that is faster than [KeepTime] allows waits.
func (w *Writer) Write(ctx context.Context, dir *os.File, want Set) (done Written, err error) {
	s := set{Writer: w, dir: dir, fd: int(dir.Fd()), files: want.Files, paths: want.Files.paths()}
	if err := s.files.check(s.paths); err != nil {
		return done, err
	}
	s.split(want.Dirs)
	if want.FSGroup != nil {
		s.group = &ownership.Options{GID: *want.FSGroup, ReadOnly: true}
	}
	if err := s.look(); err != nil {
		return done, err
	}
	if s.now == "" || !s.same(s.now) {
		if err := s.replace(ctx); err != nil {
			return done, err
		}
		done.Changed = true
	}
	if done.Left, err = s.sweep(ctx); err != nil {
		return done, err
	}
	// Also where nothing changed: a crash may have come between the switch and these.
	if err := s.link(ctx); err != nil {
		return done, err
	}
	return done, s.makeDirs()
}

// set is one Write: what dir shall hold.
type set struct {
	*Writer
	dir   *os.File
	fd    int // of dir
	files Files
	paths []string // of files, in order
	// held are the names in dir when it was looked at, sets those of all sets
	// there are, the oldest first, and now is the one that ..data leads to, or "".
	held map[string]bool
	sets []string
	now  string
	// inner are directories to be made in the set, outer those beside it.
	inner, outer []string
	group        *ownership.Options
}

// target returns the name of the set that the link called name leads to, or "".
func target(dir int, name string) string {
	to := readlink(dir, name)
	if strings.Contains(to, "/") || !isSet(to) {
		return ""
	}
	return to
}

// isSet reports whether an entry of a volume has the name of a set of files.
func isSet(name string) bool {
	rest, ok := strings.CutPrefix(name, reserved)
	return ok && rest != "" && '0' <= rest[0] && rest[0] <= '9'
}

// replace writes the files beside the sets that there are and switches to them.
func (s *set) replace(ctx context.Context) error {
	if err := s.makeRoom(ctx); err != nil {
		return err
	}
	err := s.write(ctx)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		// Better a reader that misses a file than one that never gets the new ones.
		if gone, dropErr := s.dropReplaced(ctx); dropErr == nil && gone {
			err = s.write(ctx)
		}
	}
	return err
}

// write writes one set and switches to it.
func (s *set) write(ctx context.Context) error {
	name, err := s.makeSet()
	if err != nil {
		return fmt.Errorf("make a directory for the files: %w", err)
	}
	err = s.fill(ctx, name)
	if err == nil {
		err = s.place(ctx, name, current, currentTmp)
	}
	if err != nil {
		// Not under ctx: its end may be the reason.
		return errors.Join(err, s.discard(context.WithoutCancel(ctx), name))
	}
	s.sets, s.now = append(s.sets, name), name
	return nil
}

// makeSet makes the directory of a set. Its name comes after all that there
// are, also where the clock was put back: names tell which set came when.
func (s *set) makeSet() (string, error) {
	now := s.Now().UTC()
	if n := len(s.sets); n > 0 {
		if last, err := time.Parse(stamp, s.sets[n-1]); err == nil && !now.After(last) {
			now = last.Add(time.Nanosecond)
		}
	}
	for {
		name := now.Format(stamp)
		err := unix.Mkdirat(s.fd, name, 0o700)
		if err == nil {
			return name, nil
		}
		if !errors.Is(err, unix.EEXIST) {
			return "", &os.PathError{Op: "mkdir", Path: name, Err: err}
		}
		now = now.Add(time.Nanosecond)
	}
}

// fill writes files into the empty directory called name and opens it to
// readers, once their content is durable. The names need no sync of their own:
// a file system that keeps the switch keeps what came before it.
func (s *set) fill(ctx context.Context, name string) error {
	in, err := openDir(s.fd, name)
	if err != nil {
		return err
	}
	defer unix.Close(in)
	var st unix.Statfs_t
	if err := unix.Fstatfs(in, &st); err != nil {
		return &os.PathError{Op: "statfs", Path: name, Err: err}
	}
	durable := st.Type != unix.TMPFS_MAGIC // which keeps nothing, synced or not
	for _, sub := range s.dirs() {
		if err := mkdir(in, sub); err != nil {
			return err
		}
	}
	for _, p := range s.paths {
		if ctx.Err() != nil {
			return fmt.Errorf("write %s: %w", p, context.Cause(ctx))
		}
		if err := writeFile(in, p, s.files[p], durable); err != nil {
			return err
		}
	}
	if err := s.own(ctx, in, name); err != nil {
		return err
	}
	if durable {
		for _, p := range s.paths {
			if err := syncFile(in, p); err != nil {
				return err
			}
		}
	}
	if err := unix.Fchmod(in, s.mode(dirMode, true)); err != nil {
		return &os.PathError{Op: "chmod", Path: name, Err: err}
	}
	return nil
}

// own gives what is in the set to its group.
func (s *set) own(ctx context.Context, in int, name string) error {
	if s.group == nil {
		return nil
	}
	fd, err := openDir(in, ".")
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	return ownership.Apply(ctx, f, *s.group)
}

// mode is the mode that a file or directory of the set ends up with.
func (s *set) mode(mode fs.FileMode, dir bool) uint32 {
	if s.group == nil {
		return uint32(mode)
	}
	return s.group.Mode(uint32(mode), dir)
}

func mkdir(in int, sub string) error {
	parent, err := openDir(in, path.Dir(sub))
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	if err := unix.Mkdirat(parent, path.Base(sub), dirMode); err != nil {
		return &os.PathError{Op: "mkdir", Path: sub, Err: err}
	}
	dir, err := openDir(parent, path.Base(sub))
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if err := unix.Fchmod(dir, dirMode); err != nil { // whatever the umask
		return &os.PathError{Op: "chmod", Path: sub, Err: err}
	}
	return nil
}

// writeFile writes one file; durable says that it is to be synced.
func writeFile(in int, p string, file File, durable bool) (err error) {
	fd, err := open(in, p, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	failed := func(op string, err error) error { return &os.PathError{Op: op, Path: p, Err: err} }
	defer func() {
		if e := unix.Close(fd); e != nil && err == nil {
			err = failed("close", e)
		}
	}()
	if err := writeAll(fd, file.Data); err != nil {
		return failed("write", err)
	}
	if file.Owner != nil {
		if err := unix.Fchown(fd, int(*file.Owner), -1); err != nil {
			return failed("chown", err)
		}
	}
	if err := unix.Fchmod(fd, uint32(file.Mode)); err != nil {
		return failed("chmod", err)
	}
	if durable {
		// Written back together, the files share a commit of the file system's
		// journal when they are synced one by one. A hint: it may fail.
		_ = unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE)
	}
	return nil
}

func syncFile(in int, p string) error {
	fd, err := open(in, p, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for {
		err := unix.Fsync(fd)
		if err == nil {
			return nil
		}
		if err != unix.EINTR {
			return &os.PathError{Op: "sync", Path: p, Err: err}
		}
	}
}

// place makes name a symbolic link to target: where there is one by one rename,
// so that there is always one. tmp is the name under which the link is made then.
func (s *set) place(ctx context.Context, target, name, tmp string) error {
	if !s.held[name] {
		err := unix.Symlinkat(target, s.fd, name)
		if err == nil {
			return nil
		}
		if err != unix.EEXIST { // since the directory was looked at
			return &os.LinkError{Op: "symlink", Old: target, New: name, Err: err}
		}
	}
	err := unix.Symlinkat(target, s.fd, tmp)
	if err == unix.EEXIST { // left by an earlier try
		if err := s.discard(ctx, tmp); err != nil {
			return err
		}
		err = unix.Symlinkat(target, s.fd, tmp)
	}
	if err != nil {
		return &os.LinkError{Op: "symlink", Old: target, New: tmp, Err: err}
	}
	err = unix.Renameat(s.fd, tmp, s.fd, name)
	if errors.Is(err, unix.EISDIR) {
		// A directory where a link belongs is not ours. An empty one may be what a
		// container was given to mount on; a full one is for a person to judge.
		if err = unix.Unlinkat(s.fd, name, unix.AT_REMOVEDIR); err == nil {
			err = unix.Renameat(s.fd, tmp, s.fd, name)
		}
	}
	if err != nil {
		return errors.Join(&os.LinkError{Op: "rename", Old: tmp, New: name, Err: err}, s.discard(ctx, tmp))
	}
	return nil
}

// discard removes name, whatever it is; nothing there is no error.
func (s *set) discard(ctx context.Context, name string) error {
	err := unix.Unlinkat(s.fd, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if errors.Is(err, unix.EISDIR) {
		return s.Kernel.RemoveTree(ctx, s.dir.Name(), name)
	}
	return &os.PathError{Op: "unlink", Path: name, Err: err}
}
