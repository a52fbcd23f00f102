package mount

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrMounted means that a tree was not removed, or not completely, because something is
// mounted in it.
var ErrMounted = errors.New("something is mounted there")

// Limits of one removal.
const (
	// maxDepth is how many directories of the tree are open at once. A pod may leave a
	// tree as deep as its file system allows; deeper directories are moved up.
	maxDepth = 64
	// maxRounds is how often one directory is read again because it was not empty after
	// all its entries were removed: a process is filling it.
	maxRounds = 100
	// readBatch is how many names of a directory are in memory at once.
	readBatch = 1024
)

// RemoveTree removes dir/name and everything below it (rule 4). name is one path element.
// If anything is mounted in the tree, RemoveTree removes nothing; if something gets
// mounted there meanwhile, RemoveTree leaves the content of the mount alone. Both return
// [ErrMounted]. RemoveTree removes a link and never follows it, even if a process renames
// things during the walk: it opens each directory from its parent and removes entries by
// descriptor and name. A path that does not exist is not an error.
func (k *Kernel) RemoveTree(ctx context.Context, dir, name string) error {
	path := filepath.Join(dir, name)
	if name == "/" || filepath.Base(path) != name {
		return fmt.Errorf("remove %q in %s: not a single path element: %w", name, dir, unix.EINVAL)
	}
	err := k.callAway(ctx, callRemove, request{Path: path}, func() error { return k.removeTree(ctx, path) })
	return wrap(err, "remove %s", path)
}

func (k *Kernel) removeTree(ctx context.Context, path string) error {
	p, err := k.place(path)
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer p.close()
	at, err := k.firstMountIn(p, path)
	if err != nil {
		return err
	}
	if at != "" {
		return fmt.Errorf("%s: %w", at, ErrMounted)
	}
	r := remover{k: k, top: -1}
	return r.remove(ctx, p.dir, p.name, 0)
}

// remover is one removal under way.
type remover struct {
	k      *Kernel
	top    int // descriptor of the tree's root once it is open
	lifted int // how many directories were moved up to the root
}

// remove removes name in the directory dir, with everything below it.
func (r *remover) remove(ctx context.Context, dir int, name string, depth int) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err := unix.Unlinkat(dir, name, 0)
	switch err {
	case nil, unix.ENOENT:
		return nil
	case unix.EISDIR:
	default:
		return removeError("unlinkat", name, err)
	}
	if depth >= maxDepth {
		return r.lift(dir, name)
	}
	return r.removeDir(ctx, dir, name, depth)
}

func (r *remover) removeDir(ctx context.Context, dir int, name string, depth int) error {
	for rounds := 0; rounds < maxRounds; {
		err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
		if err == unix.ENOTDIR { // replaced by something else meanwhile
			err = unix.Unlinkat(dir, name, 0)
		}
		switch err {
		case nil, unix.ENOENT:
			return nil
		case unix.ENOTEMPTY, unix.EEXIST, unix.EISDIR:
		default:
			return removeError("rmdir", name, err)
		}
		lifted := r.lifted
		if err := r.removeEntries(ctx, dir, name, depth); err != nil {
			return err
		}
		if depth > 0 || r.lifted == lifted {
			rounds++ // unless lift itself refilled the tree's root
		}
	}
	return removeError("rmdir", name, unix.ENOTEMPTY)
}

// removeEntries removes the current entries of the directory name in dir.
func (r *remover) removeEntries(ctx context.Context, dir int, name string, depth int) error {
	fd, err := r.k.openSameMount(dir, name)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) ||
		errors.Is(err, errExchanged) {
		return nil // gone or replaced: the caller tries again
	}
	if err != nil {
		return removeError("open", name, err)
	}
	d := os.NewFile(uintptr(fd), name)
	defer d.Close()
	if depth == 0 {
		r.top = fd
	}
	return r.removeBelow(ctx, d, name, depth)
}

// removeBelow removes the current entries of the directory d.
func (r *remover) removeBelow(ctx context.Context, d *os.File, name string, depth int) error {
	var first error
	for {
		names, err := d.Readdirnames(readBatch)
		for _, n := range names {
			if err := r.remove(ctx, int(d.Fd()), n, depth+1); err != nil && first == nil {
				first = fmt.Errorf("%s: %w", name, err)
			}
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, io.EOF), errors.Is(err, unix.ENOENT): // ENOENT: d itself has been removed
			return first
		case err != nil:
			return errors.Join(first, removeError("read", name, err))
		}
	}
}

// lift moves a directory that is too deep up to the tree's root, which is read again
// because it is then not empty.
func (r *remover) lift(dir int, name string) error {
	for {
		r.lifted++
		to := ".lifted-" + strconv.Itoa(r.lifted)
		err := unix.Renameat2(dir, name, r.top, to, unix.RENAME_NOREPLACE)
		switch {
		case err == nil, err == unix.ENOENT:
			return nil
		case err == unix.EEXIST:
		case err == unix.EXDEV && leaveProject(r.top):
		default:
			return fmt.Errorf("%s: move it up: %w", name, err)
		}
	}
}

// errExchanged means that an entry was moved or replaced while it was being opened.
var errExchanged = errors.New("was moved while it was opened")

// openSameMount opens the directory name in dir, unless it is a link (ELOOP, ENOTDIR) or
// the root of another mount (EXDEV).
func (k *Kernel) openSameMount(dir int, name string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW
	fd, err := k.openAt(dir, name, flags, within|unix.RESOLVE_NO_XDEV)
	if errors.Is(err, unix.EXDEV) {
		// Either a mount, or it has just been moved out of dir, for which openat2 always
		// returns EXDEV.
		fd, err := k.openAt(dir, name, unix.O_PATH|unix.O_NOFOLLOW, within)
		if errors.Is(err, unix.EXDEV) {
			return -1, errExchanged
		}
		if err != nil {
			return -1, err
		}
		defer unix.Close(fd)
		if same, err := k.sameMount(dir, fd); err != nil || same {
			return -1, cmp.Or(err, errExchanged)
		}
		return -1, unix.EXDEV
	}
	return fd, err
}

func (k *Kernel) sameMount(a, b int) (bool, error) {
	idA, err := k.identify(a)
	if err != nil {
		return false, err
	}
	idB, err := k.identify(b)
	return idA.mountID == idB.mountID, err
}

// removeError names the entry and turns errors caused by a mount into ErrMounted:
// removing a mount point gives EBUSY, opening across one EXDEV.
func removeError(call, name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EXDEV):
		return fmt.Errorf("%s: %s: %w: %w", name, call, ErrMounted, err)
	}
	return fmt.Errorf("%s: %s: %w", name, call, err)
}
