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

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/ownership"
)

const (
	current    = "..data"
	currentTmp = "..data_tmp"
	linkTmp    = "..link_tmp"
	// stamp is the format of a set's name: the time when it was written (UTC).
	stamp = "..2006_01_02_15_04_05.000000000"
	// dirMode is the mode of every directory of a set.
	dirMode = 0o755
)

// Set is the wanted content of a directory.
type Set struct {
	Files Files
	// Dirs are directories on which a container runtime mounts other volumes, since it
	// cannot make them itself in a read-only volume. Paths are relative and clean.
	Dirs []string
	// FSGroup is the group that may read the files, or nil.
	FSGroup *int64
}

// Writer writes sets of files. Both fields are required.
type Writer struct {
	Kernel *mount.Kernel
	// Now returns the time that names a set. Two sets may get the same time.
	Now func() time.Time
}

// Written is the result of a Write.
type Written struct {
	// Changed is true if the set was not there already.
	Changed bool
	// Left is the number of replaced sets, which Sweep removes later.
	Left int
}

// Write makes dir hold exactly the set. dir.Name must be the directory's absolute path.
// On an error, the directory holds either the earlier files or the new ones, never a
// part. A caller that writes more often than [KeepTime] allows has to wait.
func (w *Writer) Write(ctx context.Context, dir *os.File, want Set) (done Written, err error) {
	s := set{Writer: w, dir: dir, fd: int(dir.Fd()), files: want.Files, paths: want.Files.paths()}
	if err := s.files.check(s.paths); err != nil {
		return done, err
	}
	s.split(want.Dirs)
	if want.FSGroup != nil {
		s.group = &ownership.Options{GID: *want.FSGroup, ReadOnly: true}
	}
	if err := s.readEntries(); err != nil {
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
	// Also if nothing changed: a crash may have occurred after the switch but before
	// this.
	if err := s.link(ctx); err != nil {
		return done, err
	}
	return done, s.makeDirs()
}

// set is the state of one Write.
type set struct {
	*Writer
	dir   *os.File
	fd    int // of dir
	files Files
	paths []string // of files, sorted
	// held are the names in dir when readEntries read it, sets those of all sets, oldest
	// first, and now is the set that ..data leads to, or "".
	held map[string]bool
	sets []string
	now  string
	// inner are directories to make in the set, outer those to make outside it.
	inner, outer []string
	group        *ownership.Options
}

// target returns the name of the set that the link leads to, or "".
func target(dir int, name string) string {
	to := readlink(dir, name)
	if strings.Contains(to, "/") || !isSet(to) {
		return ""
	}
	return to
}

// isSet reports whether a directory entry is named like a set of files.
func isSet(name string) bool {
	rest, ok := strings.CutPrefix(name, reserved)
	return ok && rest != "" && '0' <= rest[0] && rest[0] <= '9'
}

// replace writes the files as a new set and switches to it.
func (s *set) replace(ctx context.Context) error {
	if err := s.makeRoom(ctx); err != nil {
		return err
	}
	err := s.write(ctx)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		// A reader that misses a file is better than one that never gets the new files.
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
		// The removal ignores the end of ctx, which may be the cause of err.
		return errors.Join(err, s.discard(context.WithoutCancel(ctx), name))
	}
	s.sets, s.now = append(s.sets, name), name
	return nil
}

// makeSet makes the directory of a set. Its name sorts after all existing ones, even if
// the clock was set back, because names tell the order of sets.
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

// fill writes files into the empty directory called name, and opens it to readers once
// their content is durable. The names need no sync of their own: a file system that
// keeps the switch also keeps earlier changes.
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
	durable := st.Type != unix.TMPFS_MAGIC // a tmpfs keeps nothing, synced or not
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
	if err := s.setGroup(ctx, in, name); err != nil {
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

// setGroup gives the set's files to the group.
func (s *set) setGroup(ctx context.Context, in int, name string) error {
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

// mode returns the final mode of a file or directory of the set.
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
	if err := unix.Fchmod(dir, dirMode); err != nil { // regardless of the umask
		return &os.PathError{Op: "chmod", Path: sub, Err: err}
	}
	return nil
}

// writeFile writes one file. If durable is set, it also starts writing the data back;
// the caller syncs it later.
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
		// If the files' data is written back together, the later syncs share a commit
		// of the file system's journal. This is only a hint, so an error is ignored.
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

// place makes name a symbolic link to target. It replaces an existing link by one
// rename, so that there always is a link; tmp is the temporary name for that.
func (s *set) place(ctx context.Context, target, name, tmp string) error {
	if !s.held[name] {
		err := unix.Symlinkat(target, s.fd, name)
		if err == nil {
			return nil
		}
		if err != unix.EEXIST { // EEXIST: name appeared after readEntries
			return &os.LinkError{Op: "symlink", Old: target, New: name, Err: err}
		}
	}
	err := unix.Symlinkat(target, s.fd, tmp)
	if err == unix.EEXIST { // left by an earlier attempt
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
		// A directory in the link's place is not ours. An empty one may be a mount
		// point made for a container; a person has to decide about one with content.
		if err = unix.Unlinkat(s.fd, name, unix.AT_REMOVEDIR); err == nil {
			err = unix.Renameat(s.fd, tmp, s.fd, name)
		}
	}
	if err != nil {
		return errors.Join(&os.LinkError{Op: "rename", Old: tmp, New: name, Err: err}, s.discard(ctx, tmp))
	}
	return nil
}

// discard removes name, whatever its type. A missing name is not an error.
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
