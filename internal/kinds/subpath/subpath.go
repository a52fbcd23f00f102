// Package subpath gives containers parts of volumes, or a whole volume. What a pod
// names by subPath is looked up beneath the volume, made if it is missing, pinned by a
// descriptor, and mounted from that descriptor at a path of its own,
//
//	pods/<uid>/volume-subpaths/<volume>/<container>/<index>
//
// which is the kubelet's path.
//
// Owns: these mounts and directories, and the helper's call that makes them.
//
// Does not: decide when. The caller must check who may use a volume, and must remove a
// volume's subpaths before the volume.
//
// Invariants: whatever a container renames or links in its volume, before, during or
// after the look-up, the mounted file lies in the volume (rule 8). Nothing in the
// volume is removed, except an empty directory that was made to learn who owns new ones.
// Remove unmounts nothing outside its directories.
//
// Concurrency: safe for concurrent use. Calls for one volume of a pod run one after the
// other, and a call that hangs blocks only those. What waits for the volume's storage
// waits in a helper process.
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

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/keylock"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/poddir"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// parent is the name of the directory that holds all subpaths of a pod.
const parent = "volume-subpaths"

// ErrMissing means that a subPath does not exist and must not be made.
var ErrMissing = errors.New("does not exist")

// ErrEscapes means that a subPath leads out of its volume.
var ErrEscapes = mount.ErrEscapes

// Binder mounts parts of volumes. Use [New] to make one.
type Binder struct {
	layout  state.Layout
	kernel  *mount.Kernel
	helpers Helpers // nil in a helper

	locks keylock.Locks // by lockName, each held by a call for that volume
}

// lockName returns the name of the lock of a pod's volume. Neither part contains a slash.
func lockName(pod state.PodUID, volume string) string { return string(pod) + "/" + volume }

// New returns a Binder for the node's root of l, which must be one of k's roots.
func New(l state.Layout, k *mount.Kernel, h Helpers) *Binder {
	return &Binder{layout: l, kernel: k, helpers: h}
}

// Request is one mount of one container.
type Request struct {
	Pod state.PodUID `json:"pod"`
	// Volume is the pod's own name for the volume.
	Volume    string `json:"volume"`
	Container string `json:"container"`
	// Index is the mount's index in the container's list.
	Index int `json:"index"`
	// Root is the volume's root directory, or for Whole perhaps a file.
	Root Root `json:"root"`
	// Path is the path in the volume, relative and without "..".
	Path string `json:"path,omitempty"`
	// Whole mounts the whole volume, a directory or a file, together with what is
	// mounted below it. Path is then empty.
	Whole bool `json:"whole,omitempty"`
	// Peer lets what the container mounts below reach the volume (Bidirectional).
	Peer bool `json:"peer,omitempty"`
	// ReadOnly forbids making anything in the volume.
	ReadOnly bool `json:"readOnly,omitempty"`
	// NoExec, NoDev and NoSuid are options of the mount.
	NoExec bool `json:"noExec,omitempty"`
	NoDev  bool `json:"noDev,omitempty"`
	NoSuid bool `json:"noSuid,omitempty"`
}

func (r Request) options() mount.BindOptions {
	return mount.BindOptions{
		NoExec: r.NoExec, NoDev: r.NoDev, NoSuid: r.NoSuid, Recursive: r.Whole, Peer: r.Peer,
	}
}

// Bind mounts what the request names, after making it if it is missing, and returns the
// mount's path. If the same file is mounted there already, the mount stays; a mount of
// another file is replaced, and so is one of an earlier version that is no slave of the
// volume.
func (b *Binder) Bind(ctx context.Context, r Request) (path string, err error) {
	dir, err := b.dir(r.Pod, r.Volume, r.Container)
	if err != nil {
		return "", err
	}
	if r.Index < 0 {
		return "", fmt.Errorf("index %d is negative", r.Index)
	}
	name := lockName(r.Pod, r.Volume)
	// A call that was left behind continues after Bind returns, so it must not use
	// variables of this frame that the return changes.
	err = b.work(ctx, name, func() error { return b.bindAway(ctx, name, r) })
	switch {
	case err != nil && r.Whole:
		return "", fmt.Errorf("volume %s: %w", r.Volume, err)
	case err != nil:
		return "", fmt.Errorf("subPath %q of volume %s: %w", r.Path, r.Volume, err)
	}
	return r.target(dir), nil
}

// target is the path of the mount; dir is the directory of the container's mounts.
func (r Request) target(dir poddir.Dir) string {
	return filepath.Join(dir.Path(), strconv.Itoa(r.Index))
}

// bind is Bind in a helper.
func (b *Binder) bind(ctx context.Context, r Request) error {
	dir, err := b.dir(r.Pod, r.Volume, r.Container)
	if err != nil {
		return err
	}
	path := r.target(dir)
	root, err := r.Root.open(b.kernel, r.Whole)
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
		kept, err := b.keep(ctx, src, path, want, r.options())
		if kept || err != nil {
			return err
		}
	}
	if err := makeTarget(dir, filepath.Base(path), want.dir); err != nil {
		return err
	}
	if err := b.kernel.BindFile(src, path, r.options()); err != nil {
		return err
	}
	if have, err := b.identityAt(path); err != nil || have != want {
		return errors.Join(fmt.Errorf("the file mounted at %s is not the one found in the volume", path), err,
			b.kernel.UnmountTree(ctx, path))
	}
	return nil
}

// keep keeps the earlier mount at path if it is one of src that a new one would equal, or
// unmounts it.
func (b *Binder) keep(ctx context.Context, src *os.File, path string, want identity,
	o mount.BindOptions,
) (bool, error) {
	have, err := b.identityAt(path)
	same := err == nil && have == want
	if same {
		joined, err := b.kernel.Joined(src, path, o)
		if err != nil {
			return false, err
		}
		if joined {
			return true, b.kernel.Restrict(path, o) // a mount made by an earlier version may lack some options
		}
	}
	err = b.kernel.UnmountTree(ctx, path)
	if err != nil && !(same && errors.Is(err, unix.EBUSY)) { // of the same file, the new mount covers one in use
		return false, fmt.Errorf("unmount the earlier mount: %w", err)
	}
	return false, nil
}

// Remove unmounts every subpath of a pod's volume and removes their directories.
// volumes are the pod's names for the volume. It is not an error if there are none.
func (b *Binder) Remove(ctx context.Context, pod state.PodUID, volumes ...string) error {
	all, err := b.dir(pod)
	if err != nil {
		return err
	}
	if !b.works(pod, volumes) { // check this first, so that a subpath being made is not missed
		if _, err := os.Lstat(all.Path()); errors.Is(err, os.ErrNotExist) {
			return nil // this pod has none, like most
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
	return b.work(ctx, lockName(pod, volume), func() error {
		if err := b.kernel.UnmountTree(ctx, dir.Path()); err != nil {
			return err
		}
		return dir.Clear(ctx, b.kernel)
	})
}

// works reports whether a call for one of a pod's volumes is running, including one
// that was left behind.
func (b *Binder) works(pod state.PodUID, volumes []string) bool {
	return slices.ContainsFunc(volumes, func(volume string) bool { return b.locks.Locked(lockName(pod, volume)) })
}

// Mounts returns the paths at which subpaths of a pod's volume are mounted, deepest
// first. It makes these mounts private, so that unmounting them affects no other
// namespace.
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

// Places lists the volumes that have subpaths on the host, including those of a
// kubelet.
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

// escape quotes a path for use in a glob pattern.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// dir returns the directory of a pod's subpaths, or the one below it at names, each of
// which is one path element.
func (b *Binder) dir(pod state.PodUID, names ...string) (poddir.Dir, error) {
	for _, n := range append([]string{string(pod)}, names...) {
		if err := poddir.CheckName(n); err != nil {
			return poddir.Dir{}, fmt.Errorf("name %.64q: %w", n, err)
		}
	}
	return poddir.At(b.layout, filepath.Join(append([]string{b.layout.Pods(), string(pod), parent}, names...)...))
}

// work runs f while no other call for the volume runs. If ctx ends first, work returns;
// if f then hangs, it is left behind and keeps the volume locked.
func (b *Binder) work(ctx context.Context, lock string, f func() error) error {
	unlock, err := b.locks.Lock(ctx, lock)
	if err != nil {
		return fmt.Errorf("another call for the volume has not ended: %w", err)
	}
	result := make(chan error, 1) // buffered: a call that was left behind must be able to end
	go func() {
		err := f()
		unlock()
		result <- err
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("no answer from the volume: %w", context.Cause(ctx))
	}
}

// identity identifies a file or directory while something keeps it open.
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

func (b *Binder) identityAt(path string) (identity, error) {
	f, err := b.kernel.Open(path)
	if err != nil {
		return identity{}, err
	}
	defer f.Close()
	return identify(f)
}
