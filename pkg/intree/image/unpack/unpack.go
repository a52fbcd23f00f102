package unpack

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

var (
	// ErrLayer means that a layer has what no layer may have.
	ErrLayer = errors.New("not a layer of an image")
	// ErrFull means that an image is too large for what is left here.
	ErrFull = errors.New("the image needs more than nine tenths of what is free")
)

const (
	maxEntries = 2_000_000
	maxPath    = 4096 // bytes, of one entry
	maxDepth   = 256  // directories
	maxID      = 1<<32 - 2
	// resolve finds a directory in the image as a container would.
	resolve = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV
	// The names of whiteouts in a layer.
	whiteout, opaque, reserved = ".wh.", ".wh..wh..opq", ".wh..wh."
)

// Tree is a file system that is being made. It is one goroutine's.
type Tree struct {
	root    *os.File
	left    int64 // bytes that it may still have
	entries int
	made    map[string]bool // by the layer under way, and what is above that; clean paths
}

// New returns a tree in an empty directory that only its owner can reach.
func New(root *os.File) (*Tree, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(root.Fd()), &st); err != nil {
		return nil, os.NewSyscallError("fstatfs", err)
	}
	return &Tree{root: root, left: int64(st.Bavail) / 10 * 9 * st.Bsize}, nil
}

// Apply applies a layer, a tar archive, above those before it. It reads to the
// archive's end, not to that of r.
func (t *Tree) Apply(ctx context.Context, r io.Reader) error {
	t.made = map[string]bool{}
	archive := tar.NewReader(r)
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		h, err := archive.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the layer: %w", err)
		}
		if t.entries++; t.entries > maxEntries {
			return fmt.Errorf("it has more than %d entries: %w", maxEntries, ErrLayer)
		}
		if err := t.entry(ctx, h, archive); err != nil {
			return fmt.Errorf("entry %.200q: %w", h.Name, err)
		}
	}
}

// local returns a path of a layer, clean and relative; "." is the root.
func local(name string) (string, error) {
	parts := strings.Split(name, "/")
	switch {
	case name == "" || len(name) > maxPath || strings.ContainsRune(name, 0):
		return "", fmt.Errorf("its path is empty, longer than %d bytes or has a NUL: %w", maxPath, ErrLayer)
	case slices.Contains(parts, ".."):
		return "", fmt.Errorf(`its path has "..": %w`, ErrLayer)
	case len(parts) > maxDepth:
		return "", fmt.Errorf("it is deeper than %d directories: %w", maxDepth, ErrLayer)
	}
	return path.Clean("./" + strings.TrimLeft(name, "/")), nil
}

func (t *Tree) entry(ctx context.Context, h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil // a comment
	}
	name, err := local(h.Name)
	if err != nil {
		return err
	}
	if h.Uid < 0 || h.Gid < 0 || h.Uid > maxID || h.Gid > maxID {
		return fmt.Errorf("its owner is %d:%d: %w", h.Uid, h.Gid, ErrLayer)
	}
	dir, base := path.Split(name)
	if name == "." {
		if h.Typeflag != tar.TypeDir {
			return fmt.Errorf("the root is a directory: %w", ErrLayer)
		}
		return t.dress(int(t.root.Fd()), h)
	}
	at, err := t.parent(dir)
	if err != nil {
		return err
	}
	defer at.Close()
	if strings.HasPrefix(base, whiteout) {
		return t.hide(ctx, at, dir, base)
	}
	err = t.make(ctx, at, made{h, base, content})
	for p := name; p != "." && !t.made[p]; p = path.Dir(p) {
		t.made[p] = true
	}
	return err
}

// parent opens the directory that an entry is in; one that is missing is made,
// as layers do not have all of them.
func (t *Tree) parent(dir string) (*os.File, error) {
	dir = path.Clean("./" + dir)
	f, err := t.open(dir)
	if err == nil || !errors.Is(err, unix.ENOENT) || dir == "." {
		return f, err
	}
	above, base := path.Split(dir)
	at, err := t.parent(above)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	if err := unix.Mkdirat(int(at.Fd()), base, 0o755); err != nil {
		return nil, os.NewSyscallError("mkdirat "+base, err)
	}
	if f, err = t.open(dir); err != nil {
		return nil, err
	}
	if err := f.Chmod(0o755); err != nil { // whatever the umask
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// open opens a directory of the tree.
func (t *Tree) open(dir string) (*os.File, error) {
	fd, err := unix.Openat2(int(t.root.Fd()), dir, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: resolve})
	if err != nil {
		return nil, os.NewSyscallError("openat2 "+dir, err)
	}
	return os.NewFile(uintptr(fd), dir), nil
}

// made is an entry to be made.
type made struct {
	h       *tar.Header
	base    string
	content io.Reader
}

func (t *Tree) make(ctx context.Context, at *os.File, m made) error {
	switch m.h.Typeflag {
	case tar.TypeDir:
		return t.directory(ctx, at, m)
	case tar.TypeReg, tar.TypeGNUSparse:
		return t.file(ctx, at, m)
	case tar.TypeSymlink:
		if m.h.Linkname == "" || len(m.h.Linkname) >= maxPath || strings.ContainsRune(m.h.Linkname, 0) {
			return fmt.Errorf("its link leads to no path: %w", ErrLayer)
		}
		if err := t.clear(ctx, at, m.base); err != nil {
			return err
		}
		if err := unix.Symlinkat(m.h.Linkname, int(at.Fd()), m.base); err != nil {
			return os.NewSyscallError("symlinkat", err)
		}
		return os.NewSyscallError("fchownat", unix.Fchownat(int(at.Fd()), m.base, m.h.Uid, m.h.Gid, unix.AT_SYMLINK_NOFOLLOW))
	case tar.TypeLink:
		return t.hardLink(ctx, at, m)
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		return t.clear(ctx, at, m.base) // left out; what it would stand for is gone, too
	}
	return fmt.Errorf("its type %q is none of a layer: %w", m.h.Typeflag, ErrLayer)
}

func (t *Tree) directory(ctx context.Context, at *os.File, m made) error {
	fd, err := openDir(at, m.base)
	if err == unix.ENOTDIR || err == unix.ELOOP { // something else of a lower layer
		if err := t.clear(ctx, at, m.base); err != nil {
			return err
		}
		err = unix.ENOENT
	}
	if err == unix.ENOENT {
		if err := unix.Mkdirat(int(at.Fd()), m.base, 0o700); err != nil {
			return os.NewSyscallError("mkdirat", err)
		}
		fd, err = openDir(at, m.base)
	}
	if err != nil {
		return os.NewSyscallError("openat", err)
	}
	defer unix.Close(fd)
	return t.dress(fd, m.h)
}

func openDir(at *os.File, base string) (int, error) {
	return unix.Openat(int(at.Fd()), base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// permissions are what an entry keeps of its mode: no set-user-id, no
// set-group-id.
const permissions = 0o1777

// dress gives what fd is open on the entry's owner and mode.
func (t *Tree) dress(fd int, h *tar.Header) error {
	if err := unix.Fchown(fd, h.Uid, h.Gid); err != nil {
		return os.NewSyscallError("fchown", err)
	}
	return os.NewSyscallError("fchmod", unix.Fchmod(fd, uint32(h.Mode)&permissions))
}

func (t *Tree) file(ctx context.Context, at *os.File, m made) error {
	if m.h.Size > t.left {
		return ErrFull
	}
	if err := t.clear(ctx, at, m.base); err != nil {
		return err
	}
	fd, err := unix.Openat(int(at.Fd()), m.base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return os.NewSyscallError("openat", err)
	}
	f := os.NewFile(uintptr(fd), m.base)
	n, err := io.Copy(f, Until(ctx, m.content))
	t.left -= n
	if err == nil {
		err = t.dress(fd, m.h)
	}
	if err == nil {
		when := unix.Timespec{Sec: max(0, m.h.ModTime.Unix())}
		err = os.NewSyscallError("utimensat", unix.UtimesNanoAt(int(at.Fd()), m.base, []unix.Timespec{when, when}, unix.AT_SYMLINK_NOFOLLOW))
	}
	return errors.Join(err, f.Close())
}

// Until returns r as a reader that ends with ctx.
func Until(ctx context.Context, r io.Reader) io.Reader { return until{ctx, r} }

type until struct {
	ctx context.Context
	r   io.Reader
}

func (u until) Read(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.r.Read(p)
}

// hardLink makes one more name of a file that the image has.
func (t *Tree) hardLink(ctx context.Context, at *os.File, m made) error {
	to, err := local(m.h.Linkname)
	if err != nil {
		return fmt.Errorf("what it is a name of: %w", err)
	}
	dir, base := path.Split(to)
	from, err := t.open(path.Clean("./" + dir))
	if err != nil {
		return err
	}
	defer from.Close()
	var old, now unix.Stat_t
	if err := unix.Fstatat(int(from.Fd()), base, &old, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return os.NewSyscallError("fstatat "+to, err)
	}
	if old.Mode&unix.S_IFMT == unix.S_IFDIR {
		return fmt.Errorf("it is a hard link to a directory: %w", ErrLayer)
	}
	if err := unix.Fstatat(int(at.Fd()), m.base, &now, unix.AT_SYMLINK_NOFOLLOW); err == nil && now.Dev == old.Dev && now.Ino == old.Ino {
		return nil
	}
	if err := t.clear(ctx, at, m.base); err != nil {
		return err
	}
	return os.NewSyscallError("linkat", unix.Linkat(int(from.Fd()), base, int(at.Fd()), m.base, 0))
}
