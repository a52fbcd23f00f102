// Package poddir makes and removes the directory that a built-in volume has in
// its pod's directory, following no symbolic link below the node's root.
package poddir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const (
	maxName = 255
	// parentMode is the mode of the directories above a volume's: nobody but
	// root looks for a pod's volumes on the host.
	parentMode = 0o750
	// maxRaces is how often Make begins again because a directory it had made was
	// removed as an empty one by a removal beside it.
	maxRaces = 16
)

// Dir is a directory somewhere below the node's root. Make one with [Of].
type Dir struct {
	root string
	rel  string // clean, local
}

// Of returns the directory of the built-in volume v in pod. It is computed from
// what identifies the volume; a record that has another target is refused, since
// somebody else wrote that.
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

// Scratch returns the directory beside the pod's volumes in which a kind keeps
// what it has to remember of the volume v.
func Scratch(l state.Layout, v state.Volume, pod state.PodUID) (Dir, error) {
	if _, err := Of(l, v, pod); err != nil {
		return Dir{}, err
	}
	kind := strings.ReplaceAll(string(v.Spec.Driver), "/", "~")
	return below(l.Root, filepath.Join(l.Pods(), string(pod), "plugins", kind, v.Spec.Name))
}

// At returns the directory of a path below the node's root.
func At(l state.Layout, path string) (Dir, error) { return below(l.Root, path) }

func below(root, path string) (Dir, error) {
	rel, err := filepath.Rel(root, path)
	if err != nil || !filepath.IsLocal(rel) || rel == "." {
		return Dir{}, fmt.Errorf("%q does not lie below %s", path, root)
	}
	return Dir{root: root, rel: rel}, nil
}

// CheckName returns why name cannot be one element of a path; nil where it can.
func CheckName(name string) error {
	switch {
	case name == "" || name == "." || name == "..":
		return errors.New("is no name for a directory")
	case len(name) > maxName:
		return fmt.Errorf("is longer than %d bytes", maxName)
	case strings.ContainsAny(name, "/\x00"):
		return errors.New(`contains "/" or NUL`)
	}
	return nil
}

// Path is the directory's absolute path.
func (d Dir) Path() string { return filepath.Join(d.root, d.rel) }

// Make returns the directory, open, and makes it with the given mode, and those
// above it, where they are missing. The mode of one that is there is left alone.
func (d Dir) Make(mode os.FileMode) (*os.File, error) {
	var f *os.File
	var err error
	for range maxRaces {
		if f, err = d.make(mode); !errors.Is(err, unix.ENOENT) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", d.Path(), err)
	}
	return f, nil
}

func (d Dir) make(mode os.FileMode) (*os.File, error) {
	at, err := os.Open(d.root)
	if err != nil {
		// Not as ENOENT: beginning again would not help.
		return nil, fmt.Errorf("open the node's root: %v", err)
	}
	elems := strings.Split(d.rel, "/")
	for i, elem := range elems {
		m := os.FileMode(parentMode)
		if i == len(elems)-1 {
			m = mode
		}
		next, err := makeIn(at, elem, m)
		at.Close()
		if err != nil {
			return nil, err
		}
		at = next
	}
	return at, nil
}

// MakeFile makes an empty file where the directory would be, for a device to be
// bound to, and the directories above it, where they are missing.
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
	at, err := Dir{d.root, filepath.Dir(d.rel)}.make(parentMode)
	if err != nil {
		return err
	}
	defer at.Close()
	err = unix.Mknodat(int(at.Fd()), filepath.Base(d.rel), unix.S_IFREG|0o600, 0)
	if err == unix.EEXIST {
		return nil
	}
	return os.NewSyscallError("mknodat", err)
}

// makeIn opens the directory name in dir, or makes it.
func makeIn(dir *os.File, name string, mode os.FileMode) (*os.File, error) {
	made := unix.Mkdirat(int(dir.Fd()), name, uint32(mode))
	if made != nil && made != unix.EEXIST {
		return nil, os.NewSyscallError("mkdirat "+name, made)
	}
	f, err := openIn(dir, name)
	if err == nil && made == nil {
		err = f.Chmod(mode) // whatever the umask
		if err != nil {
			f.Close()
		}
	}
	return f, err
}

func openIn(dir *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("openat "+name, err)
	}
	return os.NewFile(uintptr(fd), filepath.Join(dir.Name(), name)), nil
}

// open returns the directory that is n elements above d, or an error that
// wraps ENOENT where that is missing.
func (d Dir) open(n int) (*os.File, error) {
	at, err := os.Open(d.root)
	if err != nil {
		return nil, err
	}
	elems := strings.Split(d.rel, "/")
	for _, elem := range elems[:len(elems)-n] {
		next, err := openIn(at, elem)
		at.Close()
		if err != nil {
			return nil, err
		}
		at = next
	}
	return at, nil
}

// Open returns the directory, or an error that wraps [os.ErrNotExist].
func (d Dir) Open() (*os.File, error) {
	f, err := d.open(0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", d.Path(), err)
	}
	return f, nil
}

// Remove ends what is mounted at the directory, removes it with all it holds
// (rule 4), and then those above it that this leaves empty, down to the pod's.
// That it is not there is no error.
func (d Dir) Remove(ctx context.Context, k *mount.Kernel) error {
	if err := k.Unmount(ctx, d.Path()); err != nil {
		return err
	}
	return d.Clear(ctx, k)
}

// Clear is Remove of a directory on which nothing is mounted any more.
func (d Dir) Clear(ctx context.Context, k *mount.Kernel) error {
	path := d.Path()
	if err := k.RemoveTree(ctx, filepath.Dir(path), filepath.Base(path)); err != nil {
		return err
	}
	return d.prune()
}

// prune removes the directories above d that are empty, but not the first below
// the root, which holds every pod's.
func (d Dir) prune() error {
	elems := strings.Split(d.rel, "/")
	for n := 2; n < len(elems); n++ {
		parent, err := d.open(n)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return err
		}
		err = unix.Unlinkat(int(parent.Fd()), elems[len(elems)-n], unix.AT_REMOVEDIR)
		parent.Close()
		switch err {
		case nil, unix.ENOENT:
		case unix.ENOTEMPTY, unix.EEXIST, unix.EBUSY:
			return nil
		default:
			return fmt.Errorf("remove the empty directory %s above %s: %w", elems[len(elems)-n], d.Path(), err)
		}
	}
	return nil
}
