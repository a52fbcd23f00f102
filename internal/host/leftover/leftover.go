// Package leftover finds what no record explains below a node's root directory:
// directories of pods that are gone, and staging directories and mounts without a record.
// It removes only those that no pod and no operator can need.
//
// It owns the decision which of them may be removed, and their removal.
//
// It never unmounts, removes a file with content, looks into a mount or follows a link
// (rules 4 and 8). It removes directories by rmdir, the deepest first, on descriptors
// that cross no mount. The only file that it removes is the empty marker that a volume of
// a built-in kind leaves (layout of the kubelet).
//
// Concurrency: a [Scanner] is a value and may be used by many goroutines.
package leftover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/host/beneath"
	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/host/pathname"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"golang.org/x/sys/unix"
)

// Limits of one scan.
const (
	// maxEntries is how many entries of one leftover are inspected; a pod's own
	// directories have a few dozen.
	maxEntries = 4096
	// maxDepth is how deep a leftover may be: pods/UID/volumes/KIND/NAME/mount has six
	// levels.
	maxDepth = 12
)

// Kinds of leftovers.
const (
	Pod     = "pod directory"
	Staging = "staging directory"
	Block   = "block device directory"
	Mount   = "mount"
)

// Item is one leftover.
type Item struct {
	Kind string `json:"kind"`
	Path string `json:"path"`
	// Safe means that removing it loses nothing. Why says why it is safe, or why not.
	Safe bool   `json:"safe"`
	Why  string `json:"why"`
	// Removed means that it was removed. Error says why the removal failed.
	Removed bool   `json:"removed,omitempty"`
	Error   string `json:"error,omitempty"`
}

// Known is what a record, a pod or a driver accounts for.
type Known struct {
	// Pods are the pods that a source lists or a record names.
	Pods map[state.PodUID]bool
	// Paths are the records' paths: where volumes are staged and mounted.
	Paths map[string]bool
	// Unsure says why it is not known what is wanted, so that nothing is safe to remove
	// (rule 5); "" if it is known.
	Unsure string
}

// Scanner finds leftovers below one root directory.
type Scanner struct {
	// Root is the node's root directory, absolute and clean.
	Root string
	// Mounts lists the mounts at and below a directory.
	Mounts func(ctx context.Context, under string) ([]mount.Entry, error)
}

// Scan returns the leftovers, sorted by path.
func (s Scanner) Scan(ctx context.Context, known Known) ([]Item, error) {
	w, err := s.walk(ctx, known)
	if err != nil {
		return nil, fmt.Errorf("look for leftovers below %s: %w", s.Root, err)
	}
	defer w.root.Close()
	for _, part := range []func() error{w.findPods, w.findStages, w.findBlocks} {
		if err := part(); err != nil {
			return nil, fmt.Errorf("look for leftovers below %s: %w", s.Root, err)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	w.findMounts()
	slices.SortFunc(w.items, func(a, b Item) int { return cmp.Compare(a.Path, b.Path) })
	return w.items, nil
}

// Remove removes every safe item of a new scan and returns all items. It calls known
// before each removal, because a pod may have appeared.
func (s Scanner) Remove(ctx context.Context, known func() Known) ([]Item, error) {
	items, err := s.Scan(ctx, known())
	if err != nil {
		return nil, err
	}
	return s.removeSafe(ctx, items, known)
}

// Pods is Remove for pods' directories in which nothing was created since idle; it does
// not return the others. The delay is needed because a container runtime also creates a
// pod's directory, perhaps before a source lists the pod.
func (s Scanner) Pods(ctx context.Context, known func() Known, idle time.Time) ([]Item, error) {
	items, err := s.Scan(ctx, known())
	if err != nil {
		return nil, err
	}
	return s.removeSafe(ctx, slices.DeleteFunc(items, func(i Item) bool {
		info, err := os.Lstat(i.Path)
		return i.Kind != Pod || err != nil || info.ModTime().After(idle)
	}), known)
}

func (s Scanner) removeSafe(ctx context.Context, items []Item, known func() Known) ([]Item, error) {
	for i, item := range items {
		if !item.Safe || ctx.Err() != nil {
			continue
		}
		w, err := s.walk(ctx, known())
		if err != nil {
			return items, err
		}
		if w.isKnown(item.Path) {
			items[i].Safe, items[i].Why = false, "a pod or a record wants it now"
		} else if err := w.remove(item.Path); err != nil {
			items[i].Error = err.Error()
		} else {
			items[i].Removed = true
		}
		_ = w.root.Close()
	}
	return items, ctx.Err()
}

// walk is one scan of a root directory.
type walk struct {
	s       Scanner
	ctx     context.Context
	known   Known
	root    *os.File
	mounted map[string]mount.Entry // by path relative to the root
	mounts  tree                   // the keys of mounted
	records tree                   // known.Paths
	items   []Item
}

func (s Scanner) walk(ctx context.Context, known Known) (*walk, error) {
	real, err := filepath.EvalSymlinks(s.Root)
	if err != nil {
		return nil, err
	}
	entries, err := s.Mounts(ctx, real)
	if err != nil {
		return nil, err
	}
	w := &walk{s: s, ctx: ctx, known: known, mounted: map[string]mount.Entry{}}
	for _, e := range entries {
		if rel, ok := strings.CutPrefix(e.Path, real+"/"); ok {
			w.mounted[rel] = e
		}
	}
	w.mounts, w.records = newTree(maps.Keys(w.mounted)), newTree(maps.Keys(known.Paths))
	w.root, err = os.Open(real)
	return w, err
}

// isKnown reports whether a pod or record accounts for what is at, above or below path.
func (w *walk) isKnown(path string) bool {
	rel := w.rel(path)
	if uid, ok := strings.CutPrefix(rel, "pods/"); ok {
		uid, _, _ = strings.Cut(uid, "/")
		if w.known.Pods[state.PodUID(uid)] {
			return true
		}
	}
	_, below := w.records.below(path)
	return below || w.records.covers(path)
}

func (w *walk) rel(path string) string {
	return strings.TrimPrefix(strings.TrimPrefix(path, w.s.Root), "/")
}

func (w *walk) abs(rel string) string { return filepath.Join(w.s.Root, rel) }

// findPods finds the directories of unknown pods.
func (w *walk) findPods() error {
	return w.eachDir("pods", func(name string) error { w.judge(Pod, "pods/"+name); return nil })
}

const csiDir = "plugins/kubernetes.io/csi"

// findStages finds staging directories without a record.
func (w *walk) findStages() error {
	return w.eachDir(csiDir, func(driver string) error {
		if driver == "volumeDevices" {
			return nil
		}
		return w.eachDir(csiDir+"/"+driver, func(hash string) error {
			w.judge(Staging, csiDir+"/"+driver+"/"+hash)
			return nil
		})
	})
}

// findBlocks finds directories of raw block volumes without a record.
func (w *walk) findBlocks() error {
	top := csiDir + "/volumeDevices"
	return w.eachDir(top, func(name string) error {
		if name != "staging" && name != "publish" {
			if !w.isKnown(w.abs(top+"/staging/"+name)) && !w.isKnown(w.abs(top+"/publish/"+name)) {
				w.judge(Block, top+"/"+name)
			}
			return nil
		}
		return w.eachDir(top+"/"+name, func(pv string) error { w.judge(Block, top+"/"+name+"/"+pv); return nil })
	})
}

// findMounts finds mounts in the directories of volumes that have no record and are not in a
// leftover listed above. It ignores mounts elsewhere, which belong to drivers.
func (w *walk) findMounts() {
	listed := newTree(func(yield func(string) bool) {
		for _, i := range w.items {
			if !yield(i.Path) {
				return
			}
		}
	})
	for rel, e := range w.mounted {
		path := w.abs(rel)
		if listed.covers(path) || w.isKnown(path) ||
			!pathname.Within(rel, "pods") && !pathname.Within(rel, "plugins/kubernetes.io") {
			continue
		}
		w.items = append(w.items, Item{Kind: Mount, Path: path, Why: mountedWhy(path, e)})
	}
}

func mountedWhy(path string, e mount.Entry) string {
	return fmt.Sprintf("%s is mounted at %s: its files would be gone; see who uses it, adopt it or unmount it", e.FSType,
		path)
}

// eachDir calls do for the subdirectories of a directory below the root, which need not
// exist.
func (w *walk) eachDir(rel string, do func(name string) error) error {
	if _, mounted := w.mounted[rel]; mounted {
		return nil // findMounts reports it
	}
	dir, err := w.open(rel)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) ||
		errors.Is(err, unix.EXDEV) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	entries, err := readDir(dir)
	if err != nil {
		return fmt.Errorf("read %s: %w", w.abs(rel), err)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := do(e.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

// readDir returns the entries of dir: none if it was removed after it was opened, for which
// Linux returns ENOENT.
func readDir(dir *os.File) ([]os.DirEntry, error) {
	entries, err := dir.ReadDir(-1)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return entries, err
}

// open opens a directory below the root. No element of rel may be a link or a mount.
func (w *walk) open(rel string) (*os.File, error) {
	fd, err := beneath.Open(int(w.root.Fd()), rel, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: w.abs(rel), Err: err}
	}
	return os.NewFile(uintptr(fd), rel), nil
}
