// Package poddir makes and removes the directory of a built-in volume in its pod's
// directory. It follows no symbolic link below the node's root.
package poddir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/host/pathname"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const (
	maxName = 255
	// parentMode is the mode of the directories above a volume's directory: on the
	// host, only root needs to see a pod's volumes.
	parentMode = 0o750
	// maxRaces is how often Make retries because another call removed a directory that
	// Make had just made, while it was still empty.
	maxRaces = 16
)

// Dir is a directory below the node's root. Use [Of] to get one.
type Dir struct {
	root string
	rel  string // clean, local
}

// Of returns the directory of the built-in volume v in pod. It computes the path from
// the volume's identity. It refuses a record with another target, which another program
// must have written.
func Of(l state.Layout, v state.Volume, pod state.PodUID) (Dir, error) {
	for _, n := range []struct{ what, name string }{{"pod UID", string(pod)}, {"volume name", v.Spec.Name}} {
		if err := CheckName(n.name); err != nil {
			return Dir{}, fmt.Errorf("%s %.64q: %w", n.what, n.name, err)
		}
	}
	target := l.BuiltinTarget(v.Spec.Driver, pod, v.Spec.Name)
	if m, ok := v.Mounts[pod]; ok && m.Target != target {
		return Dir{}, fmt.Errorf("target %q is not the volume's directory %s", m.Target, target)
	}
	return below(l.Root, target)
}

// Scratch returns the directory, next to the pod's volumes, in which a kind stores what
// it has to remember about the volume v.
func Scratch(l state.Layout, v state.Volume, pod state.PodUID) (Dir, error) {
	if _, err := Of(l, v, pod); err != nil {
		return Dir{}, err
	}
	kind := strings.ReplaceAll(string(v.Spec.Driver), "/", "~")
	return below(l.Root, filepath.Join(l.Pods(), string(pod), "plugins", kind, v.Spec.Name))
}

// At returns the Dir for a path below the node's root.
func At(l state.Layout, path string) (Dir, error) { return below(l.Root, path) }

func below(root, path string) (Dir, error) {
	rel, err := pathname.Below(path, root)
	if err != nil {
		return Dir{}, err // also if path is the root itself
	}
	return Dir{root: root, rel: rel}, nil
}

// CheckName returns an error if name cannot be one element of a path.
func CheckName(name string) error {
	switch {
	case name == "" || name == "." || name == "..":
		return errors.New("is not a valid directory name")
	case len(name) > maxName:
		return fmt.Errorf("is longer than %d bytes", maxName)
	case strings.ContainsAny(name, "/\x00"):
		return errors.New(`contains "/" or NUL`)
	}
	return nil
}

// Path returns the directory's absolute path.
func (d Dir) Path() string { return filepath.Join(d.root, d.rel) }

// Make opens the directory, after making it with the given mode if it is missing, and
// also the missing directories above it. The mode of an existing directory stays.
func (d Dir) Make(mode os.FileMode) (*os.File, error) {
	fd, _, err := d.makeRetrying(mode)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), d.Path()), nil
}

// MakeNew makes the directory like Make but does not open it. It reports whether the
// directory was missing, in which case nothing can be mounted there.
func (d Dir) MakeNew(mode os.FileMode) (made bool, err error) {
	fd, made, err := d.makeRetrying(mode)
	if err != nil {
		return false, err
	}
	return made, os.NewSyscallError("close", unix.Close(fd))
}

// makeRetrying makes the directory even if other calls remove empty directories above
// it meanwhile.
func (d Dir) makeRetrying(mode os.FileMode) (fd int, made bool, err error) {
	for range maxRaces {
		if fd, made, err = d.make(mode); !errors.Is(err, unix.ENOENT) {
			break
		}
	}
	if err != nil {
		return -1, false, fmt.Errorf("make %s: %w", d.Path(), err)
	}
	return fd, made, nil
}

func (d Dir) make(mode os.FileMode) (fd int, made bool, err error) {
	t := d.tree()
	defer t.close()
	at, missing, err := t.openDeepest(d.rel)
	if err != nil {
		return -1, false, err
	}
	for i, elem := range missing {
		m := uint32(parentMode)
		if i == len(missing)-1 {
			m = uint32(mode)
		}
		var next int
		next, made, err = makeIn(at, elem, m)
		unix.Close(at)
		if err != nil {
			return -1, false, err
		}
		at = next
	}
	return at, made, nil
}

// MakeFile makes an empty file at the directory's path, on which a device can be bound,
// and the missing directories above it.
func (d Dir) MakeFile() error {
	var err error
	for range maxRaces {
		if err = d.makeFile(); !errors.Is(err, unix.ENOENT) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("make %s: %w", d.Path(), err)
	}
	return nil
}

func (d Dir) makeFile() error {
	at, _, err := Dir{d.root, filepath.Dir(d.rel)}.make(parentMode)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	err = unix.Mknodat(at, filepath.Base(d.rel), unix.S_IFREG|0o600, 0)
	if err == unix.EEXIST {
		return nil
	}
	return os.NewSyscallError("mknodat", err)
}

// Open opens the directory. If it is missing, the error wraps [os.ErrNotExist].
func (d Dir) Open() (*os.File, error) {
	t := d.tree()
	defer t.close()
	fd, err := t.open(d.rel)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", d.Path(), err)
	}
	return os.NewFile(uintptr(fd), d.Path()), nil
}

// Remove unmounts what is mounted at the directory, removes the directory with its
// content (rule 4), and then the directories above it that become empty, up to and
// including the pod's. A missing directory is not an error.
func (d Dir) Remove(ctx context.Context, k *mount.Kernel) error {
	if err := k.Unmount(ctx, d.Path()); err != nil {
		return err
	}
	return d.Clear(ctx, k)
}

// Clear does the same as Remove for a directory on which nothing is mounted.
func (d Dir) Clear(ctx context.Context, k *mount.Kernel) error {
	t := d.tree()
	defer t.close()
	// An unmounted volume leaves an empty directory, which needs no walk. RemoveTree
	// handles everything else.
	if err := d.rmdir(t, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		path := d.Path()
		if err := k.RemoveTree(ctx, filepath.Dir(path), filepath.Base(path)); err != nil {
			return err
		}
	}
	return d.prune(t)
}

// prune removes the empty directories above d, except the first one below the root,
// which holds all pods' directories.
func (d Dir) prune(t *tree) error {
	for n := 1; n < strings.Count(d.rel, "/"); n++ {
		err := d.rmdir(t, n)
		switch {
		case err == nil, errors.Is(err, unix.ENOENT):
		case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST), errors.Is(err, unix.EBUSY):
			return nil
		default:
			return fmt.Errorf("remove the empty directories above %s: %w", d.Path(), err)
		}
	}
	return nil
}

// rmdir removes the directory n elements above d.
func (d Dir) rmdir(t *tree, n int) error {
	rel := d.rel
	for range n {
		rel = filepath.Dir(rel)
	}
	parent, err := t.open(filepath.Dir(rel))
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	if err := unix.Unlinkat(parent, filepath.Base(rel), unix.AT_REMOVEDIR); err != nil {
		return &os.PathError{Op: "rmdir", Path: rel, Err: err}
	}
	return nil
}
