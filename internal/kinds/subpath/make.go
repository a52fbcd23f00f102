package subpath

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/beneath"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/poddir"
)

const (
	// coveredMode is the mode of mount points: only root may access them.
	coveredMode = 0o700
	// maxRaces is how often an operation is retried if a file appears or disappears
	// meanwhile.
	maxRaces = 16
)

// find opens what the request names, after making it as a directory if it is missing.
func (b *Binder) find(root *os.File, r Request) (*os.File, error) {
	if r.Whole {
		fd, err := unix.FcntlInt(root.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		return os.NewFile(uintptr(fd), root.Name()), os.NewSyscallError("fcntl", err)
	}
	f, err := b.kernel.OpenBeneath(root, r.Path)
	for range maxRaces {
		if !errors.Is(err, unix.ENOENT) {
			return f, err
		}
		if r.ReadOnly {
			return nil, fmt.Errorf("%w, and the volume is read-only: %w", ErrMissing, err)
		}
		if err := b.makeDirs(root, r.Path); err != nil {
			return nil, err
		}
		f, err = b.kernel.OpenBeneath(root, r.Path)
	}
	return f, err
}

// makeDirs makes the missing directories of rel with the mode and owner of the volume's
// root, so that whatever user may write to the root may write to them.
func (b *Binder) makeDirs(root *os.File, rel string) error {
	var like unix.Stat_t
	if err := unix.Fstat(int(root.Fd()), &like); err != nil {
		return &os.PathError{Op: "stat", Path: root.Name(), Err: err}
	}
	at := "."
	for elem := range strings.SplitSeq(filepath.Clean(rel), "/") {
		dir, err := b.kernel.OpenBeneath(root, at)
		if err != nil {
			return err
		}
		err = makeIn(dir, elem, like)
		dir.Close()
		if err != nil {
			return fmt.Errorf("make %s: %w", filepath.Join(at, elem), err)
		}
		at = filepath.Join(at, elem)
	}
	return nil
}

// makeIn makes the directory name in dir. An existing file or directory is not an
// error; opening it later shows what it is.
func makeIn(dir *os.File, name string, like unix.Stat_t) error {
	mode := like.Mode & (0o777 | unix.S_ISGID | unix.S_ISVTX)
	if err := unix.Mkdirat(int(dir.Fd()), name, 0o700); err != nil {
		if err == unix.EEXIST {
			return nil
		}
		return os.NewSyscallError("mkdirat", err)
	}
	fd, err := beneath.Open(int(dir.Fd()), name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	made := os.NewFile(uintptr(fd), name)
	defer made.Close()
	if ours, err := isNew(dir, made); err != nil || !ours {
		return err // replaced by something else, which stays unchanged
	}
	// EPERM: the server of the volume lets root give nothing away.
	if err := unix.Fchown(fd, int(like.Uid), int(like.Gid)); err != nil && err != unix.EPERM {
		return os.NewSyscallError("fchown", err)
	}
	return os.NewSyscallError("fchmod", unix.Fchmod(fd, mode)) // regardless of the umask; after fchown, which clears bits
}

// isNew reports whether d can be the directory that was just made in parent: owned by the
// user that this process is there, closed to others, and empty.
func isNew(parent, d *os.File) (bool, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(d.Fd()), &st); err != nil {
		return false, os.NewSyscallError("fstat", err)
	}
	if st.Mode&0o777 != 0o700 {
		return false, nil
	}
	if int(st.Uid) != os.Geteuid() {
		if owner, err := ownerOfNew(parent); err != nil || st.Uid != owner {
			return false, err
		}
	}
	names, err := d.Readdirnames(1)
	if len(names) > 0 {
		return false, nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return true, nil
}

// ownerOfNew returns the owner of what this process makes in dir. A server may map root
// to another user (NFS, root_squash). It makes a directory, whose name no container can guess,
// and removes it.
func ownerOfNew(dir *os.File) (uint32, error) {
	name := ".csi-volmgr-" + rand.Text()
	if err := unix.Mkdirat(int(dir.Fd()), name, 0o700); err != nil {
		return 0, os.NewSyscallError("mkdirat", err)
	}
	var st unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st.Uid, errors.Join(os.NewSyscallError("fstatat", err),
		os.NewSyscallError("unlinkat", unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR)))
}

// makeTarget makes the mount point: a directory, or a file for anything else.
func makeTarget(dir poddir.Dir, name string, isDir bool) error {
	d, err := dir.Make(coveredMode)
	if err != nil {
		return err
	}
	defer d.Close()
	for range maxRaces {
		if isDir {
			err = unix.Mkdirat(int(d.Fd()), name, coveredMode)
		} else {
			err = makeFile(d, name)
		}
		if err != unix.EEXIST {
			return wrap("make", d, name, err)
		}
		var st unix.Stat_t
		if err := unix.Fstatat(int(d.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return wrap("stat", d, name, err)
		}
		if kind := st.Mode & unix.S_IFMT; isDir && kind == unix.S_IFDIR || !isDir && kind == unix.S_IFREG {
			return nil
		}
		flags := 0
		if !isDir {
			flags = unix.AT_REMOVEDIR
		}
		if err := unix.Unlinkat(int(d.Fd()), name, flags); err != nil {
			return wrap("remove", d, name, err)
		}
	}
	return wrap("make", d, name, err)
}

func makeFile(d *os.File, name string) error {
	fd, err := unix.Openat(int(d.Fd()), name, unix.O_RDONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func wrap(op string, d *os.File, name string, err error) error {
	if err == nil {
		return nil
	}
	return &os.PathError{Op: op, Path: filepath.Join(d.Name(), name), Err: err}
}
