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

// Write makes dir hold exactly the set, and reports whether it had to be
// written. The descriptor's name is the directory's absolute path. On an error
// the files are those from before, or the new ones: never a part. A writer that
// is faster than [KeepTime] allows waits.
func (w *Writer) Write(ctx context.Context, dir *os.File, want Set) (changed bool, err error) {
	if err := want.Files.check(); err != nil {
		return false, err
	}
	s := set{Writer: w, dir: dir, fd: int(dir.Fd()), files: want.Files}
	s.split(want.Dirs)
	if want.FSGroup != nil {
		s.group = &ownership.Options{GID: *want.FSGroup, ReadOnly: true}
	}
	if old := target(s.fd, current); old == "" || !s.same(old) {
		if err := s.replace(ctx); err != nil {
			return false, err
		}
		changed = true
	} else if _, err := s.sweep(ctx); err != nil {
		return false, err
	}
	// Also where nothing changed: a crash may have come between the switch and these.
	if err := s.link(ctx); err != nil {
		return changed, err
	}
	return changed, s.makeDirs()
}

// set is one Write: what dir shall hold.
type set struct {
	*Writer
	dir   *os.File
	fd    int // of dir
	files Files
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
	if err != nil {
		return err
	}
	_, err = s.sweep(ctx)
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
	return nil
}

// makeSet makes the directory of a set. Its name comes after all that there
// are, also where the clock was put back: names tell which set came when.
func (s *set) makeSet() (string, error) {
	sets, err := s.sets()
	if err != nil {
		return "", err
	}
	now := s.Now().UTC()
	if len(sets) > 0 {
		if last, err := time.Parse(stamp, sets[len(sets)-1]); err == nil && !now.After(last) {
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
	defer in.Close()
	for _, sub := range s.dirs() {
		if err := mkdir(in, sub); err != nil {
			return err
		}
	}
	for _, p := range s.files.paths() {
		if ctx.Err() != nil {
			return fmt.Errorf("write %s: %w", p, context.Cause(ctx))
		}
		if err := writeFile(in, p, s.files[p]); err != nil {
			return err
		}
	}
	if s.group != nil {
		if err := ownership.Apply(ctx, in, *s.group); err != nil {
			return err
		}
	}
	for _, p := range s.files.paths() {
		if err := syncFile(in, p); err != nil {
			return err
		}
	}
	if err := unix.Fchmod(int(in.Fd()), s.mode(dirMode, true)); err != nil {
		return &os.PathError{Op: "chmod", Path: name, Err: err}
	}
	return nil
}

// mode is the mode that a file or directory of the set ends up with.
func (s *set) mode(mode fs.FileMode, dir bool) uint32 {
	if s.group == nil {
		return uint32(mode)
	}
	return s.group.Mode(uint32(mode), dir)
}

func mkdir(in *os.File, sub string) error {
	parent, err := openDir(int(in.Fd()), path.Dir(sub))
	if err != nil {
		return err
	}
	defer parent.Close()
	if err := unix.Mkdirat(int(parent.Fd()), path.Base(sub), dirMode); err != nil {
		return &os.PathError{Op: "mkdir", Path: sub, Err: err}
	}
	dir, err := openDir(int(parent.Fd()), path.Base(sub))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Chmod(dirMode) // whatever the umask
}

func writeFile(in *os.File, p string, file File) (err error) {
	f, err := open(int(in.Fd()), p, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	if _, err := f.Write(file.Data); err != nil {
		return err
	}
	if file.Owner != nil {
		if err := f.Chown(int(*file.Owner), -1); err != nil {
			return err
		}
	}
	if err := f.Chmod(file.Mode); err != nil {
		return err
	}
	// Written back together, the files share a commit of the file system's
	// journal when they are synced one by one. A hint: it may fail.
	_ = unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
	return nil
}

func syncFile(in *os.File, p string) error {
	f, err := open(int(in.Fd()), p, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// place makes name a symbolic link to target by one rename, so that there is
// always one. tmp is the name under which the link is made.
func (s *set) place(ctx context.Context, target, name, tmp string) error {
	if err := s.discard(ctx, tmp); err != nil {
		return err
	}
	if err := unix.Symlinkat(target, s.fd, tmp); err != nil {
		return &os.LinkError{Op: "symlink", Old: target, New: tmp, Err: err}
	}
	err := unix.Renameat(s.fd, tmp, s.fd, name)
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
