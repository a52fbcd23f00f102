// Package subpath gives containers parts of volumes, or all of one: what a pod names by
// subPath is found beneath the volume, made where it is missing, pinned by a
// descriptor, and mounted from that descriptor at a path of its own,
//
//	pods/<uid>/volume-subpaths/<volume>/<container>/<index>
//
// which is the kubelet's.
//
// Owns: these mounts and directories.
//
// Does not: decide when; who may have a volume, and that its subpaths go before
// it, is the caller's to see to.
//
// Invariants: whatever a container renames or links in its volume, before,
// during or after the look-up, what is mounted lies in the volume (rule 8).
// Nothing in the volume is ever removed. Remove ends mounts nowhere else.
//
// Concurrency: any goroutine; work for one volume of a pod is done one after
// the other, and what hangs holds up only that.
package subpath

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/pkg/intree/poddir"
	"github.com/csi-volmgr/csi-volmgr/pkg/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// parent is the name of the directory of all subpaths of a pod.
const parent = "volume-subpaths"

// ErrMissing means that there is nothing at a subPath, and that nothing may be
// made there.
var ErrMissing = errors.New("is not there")

// ErrEscapes means that a subPath leads out of its volume.
var ErrEscapes = mount.ErrEscapes

// Binder mounts parts of volumes. Make one with [New].
type Binder struct {
	layout state.Layout
	kernel *mount.Kernel

	mu   sync.Mutex
	busy map[key]chan struct{} // closed at the end of the work for a volume
}

type key struct {
	pod    state.PodUID
	volume string
}

// New returns a Binder for the node's root of l, which k knows as one of its roots.
func New(l state.Layout, k *mount.Kernel) *Binder {
	return &Binder{layout: l, kernel: k, busy: map[key]chan struct{}{}}
}

// Request is one mount of one container.
type Request struct {
	Pod state.PodUID
	// Volume is the pod's own name for the volume.
	Volume    string
	Container string
	// Index is the mount's in the container's list.
	Index int
	// Open opens the volume's root directory, for identity. It may hang.
	Open func() (*os.File, error)
	// Path is where in the volume, relative and without "..".
	Path string
	// Whole: all of the volume, a directory or a file, with what is mounted below it by
	// now. There is no Path then.
	Whole bool
	// ReadOnly: nothing is made in the volume.
	ReadOnly bool
	// NoExec, NoDev and NoSuid are options of the mount.
	NoExec, NoDev, NoSuid bool
}

func (r Request) options() mount.BindOptions {
	return mount.BindOptions{
		NoExec: r.NoExec, NoDev: r.NoDev, NoSuid: r.NoSuid, Recursive: r.Whole, Private: r.Whole,
	}
}

// Bind mounts what the request names, makes it where it is missing, and returns
// the mount's path. A mount of it that is there already stays; one of something
// else is replaced.
func (b *Binder) Bind(ctx context.Context, r Request) (path string, err error) {
	dir, err := b.dir(r.Pod, r.Volume, r.Container)
	if err != nil {
		return "", err
	}
	if r.Index < 0 {
		return "", fmt.Errorf("index %d is negative", r.Index)
	}
	target := filepath.Join(dir.Path(), strconv.Itoa(r.Index))
	// A call that is left behind goes on after the return: it may have nothing
	// of this frame that the return writes.
	err = b.work(ctx, key{r.Pod, r.Volume}, func() error { return b.bind(ctx, r, dir, target) })
	switch {
	case err != nil && r.Whole:
		return "", fmt.Errorf("volume %s: %w", r.Volume, err)
	case err != nil:
		return "", fmt.Errorf("subPath %q of volume %s: %w", r.Path, r.Volume, err)
	}
	return target, nil
}

func (b *Binder) bind(ctx context.Context, r Request, dir poddir.Dir, path string) error {
	root, err := r.Open()
	if err != nil {
		return err
	}
	defer root.Close()
	src, err := b.find(root, r)
	if err != nil {
		return err
	}
	defer src.Close()
	want, err := identify(src)
	if err != nil {
		return err
	}
	seen, err := b.kernel.Look(ctx, path)
	if err != nil {
		return err
	}
	if seen.Mounted {
		if have, err := b.at(path); err == nil && have == want {
			return b.kernel.Restrict(path, r.options()) // of an earlier version it may lack some
		}
		if err := b.kernel.UnmountTree(ctx, path); err != nil {
			return fmt.Errorf("what was mounted before: %w", err)
		}
	}
	if err := makeTarget(dir, filepath.Base(path), want.dir); err != nil {
		return err
	}
	if err := b.kernel.BindFile(src, path, r.options()); err != nil {
		return err
	}
	if have, err := b.at(path); err != nil || have != want {
		return errors.Join(fmt.Errorf("what is mounted at %s is not what was found in the volume", path), err,
			b.kernel.UnmountTree(ctx, path))
	}
	return nil
}

// Remove ends every subpath mount of a pod's volume, which has volumes as its
// names, and removes their directories; that there is none is no error.
func (b *Binder) Remove(ctx context.Context, pod state.PodUID, volumes ...string) error {
	all, err := b.dir(pod)
	if err != nil {
		return err
	}
	if !b.works(pod, volumes) { // before the look, so that what is being made is not missed
		if _, err := os.Lstat(all.Path()); errors.Is(err, os.ErrNotExist) {
			return nil // there is none for this pod, as for most
		}
	}
	for _, volume := range volumes {
		if err := b.remove(ctx, pod, volume); err != nil {
			return fmt.Errorf("remove the subpaths of volume %s: %w", volume, err)
		}
	}
	return nil
}

func (b *Binder) remove(ctx context.Context, pod state.PodUID, volume string) error {
	dir, err := b.dir(pod, volume)
	if err != nil {
		return err
	}
	return b.work(ctx, key{pod, volume}, func() error {
		if err := b.kernel.UnmountTree(ctx, dir.Path()); err != nil {
			return err
		}
		return dir.Clear(ctx, b.kernel)
	})
}

// works reports whether a call for one of a pod's volumes is under way, also one
// that was left behind.
func (b *Binder) works(pod state.PodUID, volumes []string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(volumes, func(volume string) bool { return b.busy[key{pod, volume}] != nil })
}

// Mounts lists, deepest first, where subpaths of a pod's volume are mounted, and
// makes them private, so that nothing is unmounted anywhere else with them.
func (b *Binder) Mounts(ctx context.Context, pod state.PodUID, volume string) ([]string, error) {
	dir, err := b.dir(pod, volume)
	if err != nil {
		return nil, err
	}
	entries, err := b.kernel.List(ctx, dir.Path())
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, e := range slices.Backward(entries) {
		if err := b.kernel.SetPropagation(e.Path, mount.Private); err != nil {
			return nil, err
		}
		paths = append(paths, e.Path)
	}
	return slices.Compact(paths), nil
}

// Place is a volume of a pod that has subpaths.
type Place struct {
	Pod    state.PodUID
	Volume string
}

// Places lists the volumes that have subpaths on the host, also those of a kubelet.
func (b *Binder) Places() ([]Place, error) {
	found, err := filepath.Glob(filepath.Join(escape(b.layout.Pods()), "*", parent, "*"))
	if err != nil {
		return nil, fmt.Errorf("list subpaths: %w", err)
	}
	var places []Place
	for _, path := range found {
		pod := filepath.Base(filepath.Dir(filepath.Dir(path)))
		places = append(places, Place{state.PodUID(pod), filepath.Base(path)})
	}
	return places, nil
}

// escape makes a path stand for itself in a pattern.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// dir is the directory below a pod's that the names, one element each, lead to.
func (b *Binder) dir(pod state.PodUID, names ...string) (poddir.Dir, error) {
	for _, n := range append([]string{string(pod)}, names...) {
		if err := poddir.CheckName(n); err != nil {
			return poddir.Dir{}, fmt.Errorf("name %.64q: %w", n, err)
		}
	}
	return poddir.At(b.layout, filepath.Join(append([]string{b.layout.Pods(), string(pod), parent}, names...)...))
}

// work runs f when no other work for the volume runs. Where ctx ends first it
// returns, and f, should it hang, is left to itself with the volume.
func (b *Binder) work(ctx context.Context, k key, f func() error) error {
	done := make(chan struct{})
	for {
		b.mu.Lock()
		other, taken := b.busy[k]
		if !taken {
			b.busy[k] = done
		}
		b.mu.Unlock()
		if !taken {
			break
		}
		select {
		case <-other:
		case <-ctx.Done():
			return fmt.Errorf("another call for the volume has not ended: %w", context.Cause(ctx))
		}
	}
	result := make(chan error, 1) // so that a call left behind can end
	go func() {
		err := f()
		b.mu.Lock()
		delete(b.busy, k)
		b.mu.Unlock()
		result <- err
		close(done)
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("no answer from the volume: %w", context.Cause(ctx))
	}
}

// identity is one file or directory, as long as something has it open.
type identity struct {
	dev, ino uint64
	dir      bool
}

func identify(f *os.File) (identity, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return identity{}, &os.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return identity{st.Dev, st.Ino, st.Mode&unix.S_IFMT == unix.S_IFDIR}, nil
}

func (b *Binder) at(path string) (identity, error) {
	f, err := b.kernel.Open(path)
	if err != nil {
		return identity{}, err
	}
	defer f.Close()
	return identify(f)
}
