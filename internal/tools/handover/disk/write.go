package disk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/tools/handover"
)

// scratchName is the temporary name of a file that is being written. It is in the root directory,
// so that a leftover file does not keep a volume's directory from being removed.
const scratchName = ".vol_data.json.new"

// Modes, as a kubelet sets them.
const (
	fileMode = 0o644
	dirMode  = 0o750
)

// Write writes the files durably. It leaves a file with the same content alone.
func (r Keeper) Write(ctx context.Context, files []handover.File) error {
	below, err := open(ctx, r.Layout.Root, r.Kernel)
	if err != nil {
		return err
	}
	defer below.close()
	for _, f := range files {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := below.write(f); err != nil {
			return fmt.Errorf("write %s: %w", f.Path, err)
		}
	}
	return nil
}

func (r *reader) write(f handover.File) error {
	rel, err := r.rel(f.Path)
	if err != nil {
		return err
	}
	text, err := encode(f.Values)
	if err != nil {
		return err
	}
	if f.Dir != "" {
		dir, err := r.rel(f.Dir)
		if err != nil {
			return err
		}
		// Nothing mounted on dir is opened; only its parent is.
		made, err := r.makeDirs(path.Dir(dir))
		if err != nil {
			return err
		}
		err = unix.Mkdirat(int(made.Fd()), path.Base(dir), dirMode)
		made.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return os.NewSyscallError("mkdirat", err)
		}
	}
	dir, err := r.makeDirs(path.Dir(rel))
	if err != nil {
		return err
	}
	defer dir.Close()
	if r.hasContent(rel, text) {
		return nil
	}
	return r.place(dir, path.Base(rel), text)
}

// encode encodes an object as a kubelet does.
func encode(values map[string]string) ([]byte, error) {
	if values == nil {
		return nil, nil
	}
	var b bytes.Buffer
	err := json.NewEncoder(&b).Encode(values)
	return b.Bytes(), err
}

// hasContent reports whether rel is a regular file with this content.
func (r *reader) hasContent(rel string, text []byte) bool {
	f, err := r.openAt(rel, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	have, err := io.ReadAll(io.LimitReader(f, maxNotes))
	return err == nil && bytes.Equal(have, text)
}

// place writes the file under a temporary name and renames it into the directory, which replaces an
// existing file atomically.
func (r *reader) place(dir *os.File, name string, text []byte) error {
	top := r.top
	if err := unix.Unlinkat(top, scratchName, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return os.NewSyscallError("unlinkat", err)
	}
	fd, err := unix.Openat(top, scratchName, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC,
		fileMode)
	if err != nil {
		return os.NewSyscallError("openat", err)
	}
	f := os.NewFile(uintptr(fd), scratchName)
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.NewSyscallError("renameat", unix.Renameat(top, scratchName, int(dir.Fd()), name))
	}
	if err != nil {
		return errors.Join(err, ignoreMissing(unix.Unlinkat(top, scratchName, 0)))
	}
	return dir.Sync()
}

func ignoreMissing(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// makeDirs opens a directory after creating it and its parents if they are missing.
func (r *reader) makeDirs(rel string) (*os.File, error) {
	at := "."
	for elem := range strings.SplitSeq(rel, "/") {
		parent, err := r.openAt(at, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return nil, err
		}
		err = unix.Mkdirat(int(parent.Fd()), elem, dirMode)
		parent.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, os.NewSyscallError("mkdirat", err)
		}
		at = path.Join(at, elem)
	}
	return r.openAt(rel, unix.O_RDONLY|unix.O_DIRECTORY)
}

// RemoveDirs removes those directories that are empty and not behind a mount, and returns errors
// for the others.
func (r Keeper) RemoveDirs(ctx context.Context, dirs []string) error {
	below, err := open(ctx, r.Layout.Root, r.Kernel)
	if err != nil {
		return err
	}
	defer below.close()
	var errs []error
	for _, dir := range dirs {
		rel, err := below.rel(dir)
		if err == nil {
			err = below.unlink(rel, unix.AT_REMOVEDIR)
		}
		if err != nil && !missing(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// IsDevice reports whether a path leads to a block device.
func IsDevice(path string) bool {
	var st unix.Stat_t
	return unix.Stat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK
}
