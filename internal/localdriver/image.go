package localdriver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// copyChunkBytes is how much is copied between checks of the context.
const copyChunkBytes = 64 << 20

// makeImage makes a sparse file of size bytes at path, durably. If the file exists, it is enlarged
// if necessary, but never shrunk or emptied.
func makeImage(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	err = enlarge(f, size)
	return errors.Join(err, f.Close(), syncDir(filepath.Dir(path)))
}

// growImage enlarges the existing image at path to size bytes, durably.
func growImage(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	return errors.Join(enlarge(f, size), f.Close())
}

func enlarge(f *os.File, size int64) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() >= size {
		return nil
	}
	if err := f.Truncate(size); err != nil {
		return err
	}
	return f.Sync()
}

// isBlank reports whether an image holds no data at all: lseek SEEK_DATA from offset 0 returns
// ENXIO. It need not read a sparse file that was never written. Do not format after any other
// result.
func isBlank(image *os.File) (bool, error) {
	_, err := unix.Seek(int(image.Fd()), 0, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for data in %s: %w", image.Name(), err)
	}
	return false, nil
}

// allocatedBytes returns how much space the file at path occupies.
func allocatedBytes(path string) (int64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, fmt.Errorf("stat %s: %w", path, err)
	}
	return st.Blocks * 512, nil
}

// reflink makes to an atomic copy of from that shares its blocks. ok is false, without an error, if
// the file system does not support it.
func reflink(from, to *os.File) (ok bool, err error) {
	err = unix.IoctlFileClone(int(to.Fd()), int(from.Fd()))
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOTTY), errors.Is(err, unix.EXDEV),
		errors.Is(err, unix.EINVAL):
		return false, nil
	}
	return false, fmt.Errorf("clone %s: %w", from.Name(), err)
}

// copySparse copies the parts of from that hold data to the same offsets of to, which is empty, and
// gives to the same size.
func copySparse(ctx context.Context, from, to *os.File) error {
	info, err := from.Stat()
	if err != nil {
		return err
	}
	if err := to.Truncate(info.Size()); err != nil {
		return err
	}
	for offset := int64(0); offset < info.Size(); {
		extent, ok, err := nextData(from, offset, info.Size())
		if err != nil || !ok {
			return err
		}
		if err := copyRange(ctx, from, to, extent); err != nil {
			return err
		}
		offset = extent[1]
	}
	return nil
}

// copyRange copies the bytes in [r[0], r[1]). os.File uses copy_file_range.
func copyRange(ctx context.Context, from, to *os.File, r [2]int64) error {
	if _, err := from.Seek(r[0], io.SeekStart); err != nil {
		return err
	}
	if _, err := to.Seek(r[0], io.SeekStart); err != nil {
		return err
	}
	for left := r[1] - r[0]; left > 0; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, err := io.CopyN(to, from, min(left, copyChunkBytes))
		if err != nil {
			return fmt.Errorf("copy %s: %w", from.Name(), err)
		}
		left -= n
	}
	return nil
}

// copyTree copies the directory from, with owners, modes, times, extended attributes and links, to
// the new directory to. It stays on one file system.
func copyTree(ctx context.Context, from, to string) error {
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	return runTool(ctx, "cp", "--archive", "--one-file-system", "--reflink=auto", "--sparse=auto",
		"--no-target-directory", "--", from, to)
}

// errFollowsLinks means that the kernel cannot prevent that links are followed: Linux before 5.14.
var errFollowsLinks = errors.New("the kernel follows links in the directory")

// cloneWithoutLinks returns a mount of the directory at path on which the kernel follows no link and
// opens no device. It is not attached anywhere; closing it ends it.
func cloneWithoutLinks(path string) (*os.File, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOSYS) {
		return nil, errFollowsLinks
	}
	if err != nil {
		return nil, &os.PathError{Op: "open_tree", Path: path, Err: err}
	}
	tree := os.NewFile(uintptr(fd), path)
	attr := unix.MountAttr{
		Attr_set: unix.MOUNT_ATTR_NOSYMFOLLOW | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_RDONLY,
	}
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
		return nil, errors.Join(errFollowsLinks, tree.Close())
	}
	if err != nil {
		return nil, errors.Join(&os.PathError{Op: "mount_setattr", Path: path, Err: err}, tree.Close())
	}
	return tree, nil
}

// runTool runs a program, which is killed when ctx ends, and with the driver: no mkfs may continue when the
// next driver starts its own.
func runTool(ctx context.Context, name string, args ...string) error {
	// The kernel sends the death signal when the thread that started the program ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err := run(cmd)
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", name, context.Cause(ctx))
	}
	return err
}

// runToEnd is runTool for a program that must not be killed. It outlives the driver, and keeps its device
// open exclusively, so that the next driver waits for it (see adopt).
func runToEnd(name string, args ...string) error { return run(exec.Command(name, args...)) }

// run runs a program and includes the end of its output in the error.
func run(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, lastBytes(out))
	}
	return nil
}

// lastBytes returns the end of a program's output, which has the reason of a failure.
func lastBytes(out []byte) []byte {
	const limit = 512
	if len(out) > limit {
		out = out[len(out)-limit:]
	}
	return out
}
