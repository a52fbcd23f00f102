package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/image/oci"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/image/unpack"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/poddir"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The store is the kind's directory below the plugins' directory:
//
//	trees/<digest>/content          an image's file system
//	trees/<digest>/volumes/<mark>   a volume that uses it
//	unfinished/<digest>             a tree being made or removed
//
// Content of unfinished is never used: it is made anew, or removed by the next call
// that unpublishes a volume.
const (
	trees, unfinished = "trees", "unfinished"
	content, volumes  = "content", "volumes"
	// storeMode is the mode of the directories above a tree: only root may enter them.
	storeMode = 0o700
)

// mark returns the name of the file by which a volume marks a tree as in use.
func mark(pod state.PodUID, name string) string {
	sum := sha256.Sum256([]byte(string(pod) + "/" + name))
	return hex.EncodeToString(sum[:])
}

func (d *Driver) store(elems ...string) string {
	return filepath.Join(append([]string{d.c.Layout.Plugins(), string(Kind)}, elems...)...)
}

// ensure returns the path of the image's file system, after making it if it is missing,
// and marks it as used by the volume.
func (d *Driver) ensure(ctx context.Context, image *oci.Image, mark string) (string, error) {
	tree := image.Digest.Hex()
	unlock, err := d.locks.Lock(ctx, tree)
	if err != nil {
		return "", err
	}
	defer unlock()
	_, err = os.Lstat(d.store(trees, tree))
	if errors.Is(err, os.ErrNotExist) {
		err = d.make(ctx, image, tree)
	}
	if err != nil {
		return "", err
	}
	f, err := os.OpenFile(d.store(trees, tree, volumes, mark), os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return "", err
	}
	return d.store(trees, tree, content), f.Close()
}

// make makes the image's tree in unfinished, and moves it to trees once it is complete.
func (d *Driver) make(ctx context.Context, image *oci.Image, tree string) error {
	if err := d.discard(ctx, tree); err != nil {
		return err
	}
	aside, err := poddir.At(d.c.Layout, d.store(unfinished, tree))
	if err != nil {
		return err
	}
	top, err := aside.Make(storeMode)
	if err != nil {
		return err
	}
	defer top.Close()
	had, _, err := unpack.Free(top)
	if err == nil {
		err = d.checkSpent(tree, had)
	}
	if err == nil {
		err = d.fill(ctx, image, top)
		d.remember(tree, had, err)
	}
	if err == nil {
		// Otherwise a power failure could leave a tree without its content in trees.
		err = os.NewSyscallError("syncfs", unix.Syncfs(int(top.Fd())))
	}
	if err == nil {
		err = d.move(unfinished, trees, tree)
	}
	if err != nil {
		return errors.Join(err, d.discard(context.WithoutCancel(ctx), tree))
	}
	return nil
}

// fill unpacks the image below the directory top.
func (d *Driver) fill(ctx context.Context, image *oci.Image, top *os.File) error {
	for _, name := range []string{volumes, content} {
		if err := unix.Mkdirat(int(top.Fd()), name, storeMode); err != nil {
			return os.NewSyscallError("mkdirat", err)
		}
	}
	fd, err := unix.Openat(int(top.Fd()), content, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("openat", err)
	}
	root := os.NewFile(uintptr(fd), content)
	defer root.Close()
	if err := root.Chmod(0o755); err != nil { // the image may set another mode
		return err
	}
	request := unpackRequest{image, filepath.Join(top.Name(), content)}
	_, err = isolate.Ask[any](ctx, d.c.Away, top.Name(), callUnpack, request)
	return err
}

// releaseTrees removes the volume's mark, and every tree without marks. It may be repeated.
func (d *Driver) releaseTrees(ctx context.Context, mark string) error {
	all, err := names(d.store(trees))
	if err != nil {
		return err
	}
	for _, tree := range all {
		if err := d.unmark(ctx, tree, mark); err != nil {
			return err
		}
	}
	// Also remove what interrupted calls left.
	if all, err = names(d.store(unfinished)); err != nil {
		return err
	}
	for _, tree := range all {
		if err := d.sweep(ctx, tree); err != nil {
			return err
		}
	}
	return d.prune()
}

func (d *Driver) unmark(ctx context.Context, tree, mark string) error {
	unlock, err := d.locks.Lock(ctx, tree)
	if err != nil {
		return err
	}
	defer unlock()
	if err := os.Remove(d.store(trees, tree, volumes, mark)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	left, err := names(d.store(trees, tree, volumes))
	if err != nil || len(left) > 0 {
		return err
	}
	if err := d.discard(ctx, tree); err != nil {
		return err
	}
	// Move it in one step, so that a partly removed tree is never used.
	if err := d.move(trees, unfinished, tree); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return d.discard(ctx, tree)
}

// move moves a tree from one of the store's directories to the other.
func (d *Driver) move(from, to, tree string) error {
	d.mu.Lock() // prune removes empty directories
	defer d.mu.Unlock()
	if err := os.Mkdir(d.store(to), storeMode); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return os.Rename(d.store(from, tree), d.store(to, tree))
}

// prune removes the store's empty directories.
func (d *Driver) prune() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, dir := range []string{trees, unfinished} {
		if err := os.Remove(d.store(dir)); err != nil && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// sweep removes an unfinished tree unless a call is working on it.
func (d *Driver) sweep(ctx context.Context, tree string) error {
	if d.locks.Locked(tree) {
		return nil
	}
	unlock, err := d.locks.Lock(ctx, tree)
	if err != nil {
		return err
	}
	defer unlock()
	return d.discard(ctx, tree)
}

// discard removes an unfinished tree. The caller holds the tree's lock.
func (d *Driver) discard(ctx context.Context, tree string) error {
	return d.c.Kernel.RemoveTree(ctx, d.store(unfinished), tree)
}

// names returns the names in a directory of the store. Another volume's end may remove
// the directory at any time.
func names(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return entries(f)
}

// entries returns the names in an open directory. Linux returns ENOENT if the directory
// was removed meanwhile.
func entries(dir *os.File) ([]string, error) {
	names, err := dir.Readdirnames(-1)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return names, err
}
