package unpack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// hide applies a whiteout: it removes what lower layers have under that name or in that
// directory, and keeps what this layer made.
func (t *Tree) hide(ctx context.Context, at *os.File, dir, base string) error {
	if base == opaque {
		return t.empty(ctx, at, path.Clean("./"+dir))
	}
	if strings.HasPrefix(base, reserved) {
		return nil // metadata of a storage driver
	}
	name := strings.TrimPrefix(base, whiteout)
	if name == "" || name == "." || name == ".." {
		return fmt.Errorf("it is a whiteout without a name: %w", ErrLayer)
	}
	if here := path.Join(dir, name); t.made[markOf(here)] {
		return t.emptyIn(ctx, at, name, here)
	}
	return t.clear(ctx, at, name)
}

// batch is how many names of a directory are in memory at once, since a layer may have
// millions in one.
const batch = 256

// empty removes what lower layers have in a directory.
func (t *Tree) empty(ctx context.Context, at *os.File, dir string) error {
	fd, err := openDir(at, ".")
	if err != nil {
		return os.NewSyscallError("openat "+dir, err)
	}
	f := os.NewFile(uintptr(fd), at.Name())
	defer f.Close()
	return eachName(f, func(name string) error {
		here := path.Join(dir, name)
		if t.made[markOf(here)] {
			return t.emptyIn(ctx, at, name, here)
		}
		return t.clear(ctx, at, name)
	})
}

// eachName calls f for each name in the directory; f may remove it.
func eachName(dir *os.File, f func(name string) error) error {
	for {
		names, err := dir.Readdirnames(batch)
		for _, name := range names {
			if err := f(name); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// emptyIn calls empty for name if that is a directory. This layer made name or has an
// entry in it.
func (t *Tree) emptyIn(ctx context.Context, at *os.File, name, here string) error {
	fd, err := openDir(at, name)
	if err == unix.ENOTDIR || err == unix.ELOOP || err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return os.NewSyscallError("openat "+here, err)
	}
	below := os.NewFile(uintptr(fd), here)
	defer below.Close()
	return t.empty(ctx, below, here)
}

// clear removes name in the directory at, with everything below it. A missing name is
// not an error.
func (t *Tree) clear(ctx context.Context, at *os.File, name string) error {
	return clearAt(ctx, at, name, 0)
}

func clearAt(ctx context.Context, at *os.File, name string, depth int) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err := unix.Unlinkat(int(at.Fd()), name, 0)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	if err != unix.EISDIR && err != unix.EPERM {
		return os.NewSyscallError("unlinkat "+name, err)
	}
	if depth > maxDepth*2 {
		return fmt.Errorf("directories are nested more than %d deep: %w", maxDepth*2, ErrLayer)
	}
	fd, err := openDir(at, name)
	if err != nil {
		return os.NewSyscallError("openat "+name, err)
	}
	below := os.NewFile(uintptr(fd), name)
	defer below.Close()
	if err := eachName(below, func(n string) error { return clearAt(ctx, below, n, depth+1) }); err != nil {
		return err
	}
	return os.NewSyscallError("unlinkat "+name, unix.Unlinkat(int(at.Fd()), name, unix.AT_REMOVEDIR))
}
