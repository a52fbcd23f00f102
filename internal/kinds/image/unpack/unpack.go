package unpack

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/beneath"
)

var (
	// ErrLayer means that a layer contains something that no layer may contain.
	ErrLayer = errors.New("invalid image layer")
	// ErrFull means that an image is too large for the free space.
	ErrFull = errors.New("the image needs more than nine tenths of the free space")
)

const (
	maxEntries = 2_000_000 // of an image; also the paths of one layer, including parent directories
	// Limits on directories made without an entry of their own: enough for what
	// archives leave out, but not thousands for one entry of a few bytes.
	impliedFirst, impliedPerEntry = 4096, 4
	// inInode is the longest link target (bytes) that needs no block of its own.
	inInode  = 59
	maxPath  = 4096 // bytes, of one entry
	maxDepth = 256  // directories
	maxID    = 1<<32 - 2
	// resolve finds a directory in the image as a container would.
	resolve = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV
	// Names and prefixes of whiteouts in a layer.
	whiteout, opaque, reserved = ".wh.", ".wh..wh..opq", ".wh..wh."
)

// Tree is a file system being made. It is not safe for concurrent use.
type Tree struct {
	root    *os.File
	left    Space // space that it may still use
	block   int64 // bytes
	entries int
	implied int           // directories made without an entry
	made    map[mark]bool // paths made by the current layer, and their parents
}

// Space is the free or used space of a file system.
type Space struct {
	Bytes, Files int64
}

// Free returns the free space of the file system of dir, and its block size.
func Free(dir *os.File) (free Space, block int64, err error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &st); err != nil {
		return free, 0, os.NewSyscallError("fstatfs", err)
	}
	free = Space{Bytes: int64(st.Bavail) * int64(st.Bsize), Files: int64(st.Ffree)}
	if st.Files == 0 { // the file system does not count them
		free.Files = math.MaxInt64
	}
	return free, int64(st.Bsize), nil
}

// mark represents a clean path; names in a layer may be kilobytes long.
type mark [16]byte

func markOf(path string) mark {
	sum := sha256.Sum256([]byte(path))
	return mark(sum[:16])
}

// New returns a tree in an empty directory that only its owner can access.
func New(root *os.File) (*Tree, error) {
	free, block, err := Free(root)
	if err != nil {
		return nil, err
	}
	return &Tree{root: root, block: block, left: Space{free.Bytes / 10 * 9, free.Files / 10 * 9}}, nil
}

// spend accounts for one more file or directory with the given number of bytes.
func (t *Tree) spend(bytes int64) error {
	t.left.Files--
	t.left.Bytes -= (bytes + t.block - 1) / t.block * t.block
	if t.left.Files < 0 || t.left.Bytes < 0 {
		return ErrFull
	}
	return nil
}

// Apply applies a layer, a tar archive, on top of the earlier ones. It reads to the end
// of the archive, not of r.
func (t *Tree) Apply(ctx context.Context, r io.Reader) error {
	t.made = map[mark]bool{}
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
		if err := t.count(); err != nil {
			return err
		}
		if err := t.entry(ctx, h, archive); err != nil {
			return fmt.Errorf("entry %.200q: %w", h.Name, err)
		}
	}
}

// count counts one more entry, or one more directory without an entry.
func (t *Tree) count() error {
	if t.entries++; t.entries > maxEntries {
		return fmt.Errorf("it has more than %d entries: %w", maxEntries, ErrLayer)
	}
	return nil
}

// local returns a path of a layer in clean, relative form; "." is the root.
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
	if h.Uid < 0 || h.Gid < 0 || int64(h.Uid) > maxID || int64(h.Gid) > maxID {
		return fmt.Errorf("its owner is %d:%d: %w", h.Uid, h.Gid, ErrLayer)
	}
	dir, base := path.Split(name)
	if name == "." {
		if h.Typeflag != tar.TypeDir {
			return fmt.Errorf("the root must be a directory: %w", ErrLayer)
		}
		return t.setAttributes(int(t.root.Fd()), h)
	}
	at, err := t.parent(dir)
	if err != nil {
		return err
	}
	defer at.Close()
	if strings.HasPrefix(base, whiteout) {
		return t.hide(ctx, at, dir, base)
	}
	if err := t.make(ctx, at, made{h, base, content}); err != nil {
		return err
	}
	return t.note(name)
}

// note records that the layer made the path, and also its parents.
func (t *Tree) note(name string) error {
	for p := name; p != "."; p = path.Dir(p) {
		m := markOf(p)
		if t.made[m] {
			return nil
		}
		if len(t.made) >= maxEntries {
			return fmt.Errorf("its entries have more than %d paths: %w", maxEntries, ErrLayer)
		}
		t.made[m] = true
	}
	return nil
}

// parent opens the directory that contains an entry. It makes missing directories,
// since layers do not have entries for all of them.
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
	if err := t.countImplied(); err != nil {
		return nil, err
	}
	if err := unix.Mkdirat(int(at.Fd()), base, 0o755); err != nil {
		return nil, os.NewSyscallError("mkdirat "+base, err)
	}
	if f, err = t.open(dir); err != nil {
		return nil, err
	}
	if err := f.Chmod(0o755); err != nil { // regardless of the umask
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// countImplied counts a directory without an entry of its own.
func (t *Tree) countImplied() error {
	if t.implied++; t.implied > impliedFirst+impliedPerEntry*(t.entries-t.implied+1) {
		return fmt.Errorf("%d directories of its entries have no entries of their own: %w", t.implied, ErrLayer)
	}
	if err := t.count(); err != nil {
		return err
	}
	return t.spend(t.block)
}

// open opens a directory of the tree.
func (t *Tree) open(dir string) (*os.File, error) {
	fd, err := beneath.Open(int(t.root.Fd()), dir, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: resolve,
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return os.NewFile(uintptr(fd), dir), nil
}

// made is an entry to make.
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
			return fmt.Errorf("its link target is empty, too long or has a NUL: %w", ErrLayer)
		}
		if err := t.clear(ctx, at, m.base); err != nil {
			return err
		}
		var bytes int64
		if len(m.h.Linkname) > inInode {
			bytes = t.block
		}
		if err := t.spend(bytes); err != nil {
			return err
		}
		if err := unix.Symlinkat(m.h.Linkname, int(at.Fd()), m.base); err != nil {
			return os.NewSyscallError("symlinkat", err)
		}
		return os.NewSyscallError("fchownat", unix.Fchownat(int(at.Fd()), m.base, m.h.Uid, m.h.Gid, unix.AT_SYMLINK_NOFOLLOW))
	case tar.TypeLink:
		return t.hardLink(ctx, at, m)
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		return t.clear(ctx, at, m.base) // not made, but it replaces a lower layer's file
	}
	return fmt.Errorf("its type %q is not allowed in a layer: %w", m.h.Typeflag, ErrLayer)
}

func (t *Tree) directory(ctx context.Context, at *os.File, m made) error {
	fd, err := openDir(at, m.base)
	if err == unix.ENOTDIR || err == unix.ELOOP { // a lower layer's file or link
		if err := t.clear(ctx, at, m.base); err != nil {
			return err
		}
		err = unix.ENOENT
	}
	if err == unix.ENOENT {
		if err := t.spend(t.block); err != nil {
			return err
		}
		if err := unix.Mkdirat(int(at.Fd()), m.base, 0o700); err != nil {
			return os.NewSyscallError("mkdirat", err)
		}
		fd, err = openDir(at, m.base)
	}
	if err != nil {
		return os.NewSyscallError("openat", err)
	}
	defer unix.Close(fd)
	return t.setAttributes(fd, m.h)
}

func openDir(at *os.File, base string) (int, error) {
	return unix.Openat(int(at.Fd()), base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

func (t *Tree) file(ctx context.Context, at *os.File, m made) error {
	if m.h.Size > t.left.Bytes {
		return ErrFull
	}
	if err := t.spend(m.h.Size); err != nil {
		return err
	}
	if err := t.clear(ctx, at, m.base); err != nil {
		return err
	}
	fd, err := unix.Openat(int(at.Fd()), m.base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC,
		0o600)
	if err != nil {
		return os.NewSyscallError("openat", err)
	}
	f := os.NewFile(uintptr(fd), m.base)
	_, err = io.Copy(f, Until(ctx, m.content)) // the archive's reader ends after the entry's size
	if err == nil {
		err = t.setAttributes(fd, m.h)
	}
	if err == nil {
		when := timeOf(m.h)
		err = os.NewSyscallError("utimensat", unix.UtimesNanoAt(int(at.Fd()), m.base, []unix.Timespec{when, when},
			unix.AT_SYMLINK_NOFOLLOW))
	}
	return errors.Join(err, f.Close())
}

// Until returns a reader that reads from r until ctx ends.
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

// hardLink makes another name for a file of the image.
func (t *Tree) hardLink(ctx context.Context, at *os.File, m made) error {
	to, err := local(m.h.Linkname)
	if err != nil {
		return fmt.Errorf("the target of the hard link: %w", err)
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
	if err := unix.Fstatat(int(at.Fd()), m.base, &now, unix.AT_SYMLINK_NOFOLLOW); err == nil && now.Dev == old.Dev &&
		now.Ino == old.Ino {
		return nil
	}
	if err := t.clear(ctx, at, m.base); err != nil {
		return err
	}
	return os.NewSyscallError("linkat", unix.Linkat(int(from.Fd()), base, int(at.Fd()), m.base, 0))
}
