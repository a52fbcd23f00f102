package csiclient

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/beneath"
	"github.com/csi-volmgr/csi-volmgr/internal/host/pathname"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// dirMode is the mode of every directory made for a driver, as in the kubelet.
const dirMode = 0o750

// mkdirTries limits how often making a directory starts again because another
// volume's clean-up removed an empty parent.
const mkdirTries = 64

// dirs makes and removes the files and directories that calls need and leave, beneath
// one root (rule 8). It works on directory entries and opens nothing that may be on
// a volume's storage.
type dirs struct {
	root *os.Root
	base string   // root's path
	top  *os.File // root's directory
}

// openDirs opens the root directory at path.
func openDirs(path string) (*dirs, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	top, err := root.OpenFile(".", unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &dirs{root: root, base: root.Name(), top: top}, nil
}

func (d *dirs) close() error {
	return errors.Join(d.top.Close(), d.root.Close())
}

// rel returns path relative to the root, or an error if path is not beneath it.
func (d *dirs) rel(path string) (string, error) { return pathname.Below(path, d.base) }

// makeDir makes the directory path and its parents. It succeeds if path is already a
// directory, or cannot be inspected because it is a dead mount.
func (d *dirs) makeDir(path string) error {
	rel, err := d.rel(path)
	if err != nil {
		return err
	}
	err = d.inMade(filepath.Dir(rel), func(fd int) error {
		return os.NewSyscallError("mkdir", unix.Mkdirat(fd, filepath.Base(rel), dirMode))
	})
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if e, err := d.look(rel); err == nil && e.mode&unix.S_IFMT != unix.S_IFDIR {
		return fmt.Errorf("path %q: exists and is not a directory", path)
	}
	return nil
}

// makeParent makes the parent directory of path.
func (d *dirs) makeParent(path string) error {
	rel, err := d.rel(path)
	if err != nil {
		return err
	}
	return d.mkdirAll(filepath.Dir(rel))
}

// makeRoom makes the parent directory of path. If it already existed, makeRoom removes
// an entry at path that can be removed without loss.
func (d *dirs) makeRoom(path string, mode state.Mode) error {
	rel, err := d.rel(path)
	if err != nil {
		return err
	}
	dir := filepath.Dir(rel)
	for range mkdirTries {
		err = d.mkdirIn(filepath.Dir(dir), filepath.Base(dir))
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		err = d.inParent(rel, func(fd int, name string) error {
			if err := unix.Unlinkat(fd, name, unix.AT_REMOVEDIR); errors.Is(err, unix.ENOTDIR) && mode == state.Block {
				_ = d.clearFile(rel) // the driver sees what is left
			}
			return nil
		})
		if !errors.Is(err, fs.ErrNotExist) { // another volume's clean-up removed the parent
			return err
		}
	}
	return err
}

// mkdirAll makes the directory rel and its parents.
func (d *dirs) mkdirAll(rel string) error {
	fd, err := d.open(rel)
	if err == nil {
		unix.Close(fd)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return d.mkdirNew(rel)
	}
	return err
}

// mkdirNew is mkdirAll for a directory that was found missing.
func (d *dirs) mkdirNew(rel string) error {
	err := d.mkdirIn(filepath.Dir(rel), filepath.Base(rel))
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	fd, err := d.open(rel) // another goroutine made it; it must be a directory
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// mkdirIn makes the directory name in the directory rel. It also makes rel and its parents.
func (d *dirs) mkdirIn(rel, name string) error {
	return d.inMade(rel, func(fd int) error {
		return os.NewSyscallError("mkdir", unix.Mkdirat(fd, name, dirMode))
	})
}

// inMade makes the directory rel and its parents and calls f with its descriptor. It
// calls f again if the directory was removed meanwhile.
func (d *dirs) inMade(rel string, f func(fd int) error) (err error) {
	for range mkdirTries {
		var fd int
		if fd, err = d.make(rel); err == nil {
			err = f(fd)
			unix.Close(fd)
		}
		if !errors.Is(err, fs.ErrNotExist) { // another volume's clean-up removed it
			return err
		}
	}
	return err
}

// make makes the directory rel and its missing parents, and opens it. Usually nothing
// is missing, or the last directory, or for a new pod all but the first. So make tries
// to open these instead of each element of rel.
func (d *dirs) make(rel string) (int, error) {
	first, _, _ := strings.Cut(rel, "/")
	from := [...]string{rel, filepath.Dir(rel), first, "."}
	fd, err, there := -1, error(nil), ""
	for _, there = range from {
		if fd, err = d.open(there); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err == nil && there != rel {
		for name := range strings.SplitSeq(strings.TrimPrefix(rel, there+"/"), "/") {
			there = filepath.Join(there, name)
			parent := fd
			fd, err = d.makeIn(parent, there)
			unix.Close(parent)
			if err != nil {
				break
			}
		}
	}
	if err != nil {
		return -1, fmt.Errorf("make directory %s: %w", filepath.Join(d.base, there), err)
	}
	return fd, nil
}

// makeIn makes the directory rel, whose parent is open as parent, and opens it.
func (d *dirs) makeIn(parent int, rel string) (int, error) {
	name := filepath.Base(rel)
	err := unix.Mkdirat(parent, name, dirMode)
	if errors.Is(err, fs.ErrExist) {
		return d.open(rel)
	}
	if err != nil {
		return -1, err
	}
	return openIn(parent, name)
}

// open opens the directory rel, which is beneath the root, with O_PATH.
func (d *dirs) open(rel string) (int, error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		var fd int
		var err error
		if closed := d.control(func(top int) { fd, err = beneath.Open(top, rel, &how) }); closed != nil {
			return -1, fmt.Errorf("%s: %w", d.base, os.ErrClosed)
		}
		if errors.Is(err, unix.EAGAIN) { // a rename raced
			continue
		}
		return fd, os.NewSyscallError("open", err)
	}
}

// control calls f with the root's descriptor, which cannot be closed meanwhile.
func (d *dirs) control(f func(fd int)) error {
	c, err := d.top.SyscallConn()
	if err != nil {
		return err
	}
	return c.Control(func(fd uintptr) { f(int(fd)) })
}

// entry describes one directory entry.
type entry struct {
	exists, mounted bool
	mode            uint16
	size            uint64
}

// look describes the entry at rel. It follows no link and does no I/O on the storage
// of a volume.
func (d *dirs) look(rel string) (entry, error) {
	var e entry
	err := d.inParent(rel, func(fd int, name string) error {
		var st unix.Statx_t
		const flags = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_STATX_DONT_SYNC
		if err := unix.Statx(fd, name, flags, unix.STATX_TYPE|unix.STATX_SIZE, &st); err != nil {
			return err
		}
		e = entry{exists: true, mounted: st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, mode: st.Mode, size: st.Size}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return entry{}, nil
	}
	return e, err
}

// exists reports whether there is an entry at path. It returns true if it cannot tell.
func (d *dirs) exists(path string) bool {
	rel, err := d.rel(path)
	if err != nil {
		return true
	}
	e, err := d.look(rel)
	return err != nil || e.exists
}

// isLink reports whether there is a symbolic link at path.
func (d *dirs) isLink(path string) bool {
	rel, err := d.rel(path)
	if err != nil {
		return false
	}
	e, err := d.look(rel)
	return err == nil && e.mode&unix.S_IFMT == unix.S_IFLNK
}

// inParent calls f with a descriptor of rel's parent directory and rel's last element.
func (d *dirs) inParent(rel string, f func(fd int, name string) error) error {
	dir, err := d.open(filepath.Dir(rel))
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return f(dir, filepath.Base(rel))
}
