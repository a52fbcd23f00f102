package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/beneath"
	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/host/pathname"
	"github.com/csi-volmgr/csi-volmgr/internal/tools/handover"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Keeper writes and removes the files that a kubelet keeps in addition to a volume.
type Keeper struct {
	Layout state.Layout
	Kernel *mount.Kernel
}

// BeforeUnpublish removes what a kubelet kept for one pod's use of a volume: the notes, the marker
// of a wrapped directory, and for a raw block volume the loop device that keeps it open and the
// mount behind that. It is not an error if there is nothing.
func (r Keeper) BeforeUnpublish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	notesAlone := !v.Spec.Builtin && v.Spec.Mode != state.Block
	if notesAlone && r.noNotes(filepath.Dir(v.Mounts[pod].Target)) {
		return nil
	}
	below, err := open(ctx, r.Layout.Root, r.Kernel)
	if err != nil {
		return err
	}
	defer below.close()
	switch m := v.Mounts[pod]; {
	case v.Spec.Builtin:
		mark := path.Join("pods", string(pod), "plugins/kubernetes.io~empty-dir", "wrapped_"+v.Spec.Name, "ready")
		return below.remove(mark, "pods/"+string(pod))
	case notesAlone:
		dir, err := below.rel(filepath.Dir(m.Target))
		if err != nil {
			return err
		}
		return below.remove(path.Join(dir, handover.NotesName), dir) // the directory is removed with the volume
	}
	if err := r.unmap(ctx, handover.MapPath(r.Layout, v.Spec.Name, pod)); err != nil {
		return err
	}
	kept := path.Join(deviceDir, v.Spec.Name)
	if err := below.remove(path.Join(kept, "dev", string(pod)), deviceDir); err != nil || len(v.Mounts) > 1 {
		return err
	}
	return below.remove(path.Join(kept, "data", handover.NotesName), deviceDir)
}

// BeforeUnstage removes the notes about a staged volume.
func (r Keeper) BeforeUnstage(ctx context.Context, v state.Volume) error {
	if v.Spec.Mode != state.Block && r.noNotes(filepath.Dir(v.Spec.StagePath)) {
		return nil
	}
	below, err := open(ctx, r.Layout.Root, r.Kernel)
	if err != nil {
		return err
	}
	defer below.close()
	if v.Spec.Mode == state.Block {
		return below.remove(path.Join(deviceDir, v.Spec.Name, "data", handover.NotesName), deviceDir)
	}
	dir, err := below.rel(filepath.Dir(v.Spec.StagePath))
	if err != nil {
		return err
	}
	return below.remove(path.Join(dir, handover.NotesName), dir)
}

// noNotes reports whether a directory below the root certainly has no notes, which is the usual
// case for volumes that no kubelet had. It takes one system call for the whole path, which is
// cheaper than a removal. It returns false if the path, including the root's, contains a link; the
// removal resolves the root.
func (r Keeper) noNotes(dir string) bool {
	if _, err := pathname.Below(dir, r.Layout.Root); err != nil {
		return false
	}
	fd, err := beneath.Open(unix.AT_FDCWD, path.Join(dir, handover.NotesName), &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err == nil {
		unix.Close(fd)
	}
	return err == unix.ENOENT
}

// Empty removes an empty staging directory and the notes beside it.
func (r Keeper) Empty(ctx context.Context, stage string) error {
	below, err := open(ctx, r.Layout.Root, r.Kernel)
	if err != nil {
		return err
	}
	defer below.close()
	rel, err := below.rel(stage)
	if err != nil {
		return err
	}
	if err := below.unlink(rel, unix.AT_REMOVEDIR); err != nil && !missing(err) {
		return err
	}
	return below.remove(path.Join(path.Dir(rel), handover.NotesName), csiDir)
}

// unmap detaches the loop device that keeps a device open, and unmounts its path.
func (r Keeper) unmap(ctx context.Context, at string) error {
	seen, err := r.Kernel.Look(ctx, at)
	if err != nil || !seen.Mounted {
		return err
	}
	real, err := filepath.EvalSymlinks(filepath.Dir(at)) // the path as the kernel has it
	if err != nil {
		return err
	}
	backing, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return err
	}
	for _, file := range backing {
		text, err := os.ReadFile(file)
		if err != nil || strings.TrimSpace(string(text)) != filepath.Join(real, filepath.Base(at)) {
			continue // detached meanwhile, or of another file
		}
		if err := detach("/dev/" + filepath.Base(filepath.Dir(filepath.Dir(file)))); err != nil {
			return err
		}
	}
	return r.Kernel.Unmount(ctx, at)
}

// detach detaches a loop device from its file. If a process has the device open, that takes effect
// when the last one closes it.
func detach(device string) error {
	f, err := os.OpenFile(device, os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("detach %s: %w", device, err)
	}
	return nil
}

// rel converts a path below the root to a relative one.
func (r *reader) rel(at string) (string, error) { return pathname.Below(at, r.root) }

// remove removes a file, and then each empty directory above it, up to but not including top. A
// directory or mount in place of the file is not the kubelet's, and is an error.
func (r *reader) remove(rel, top string) error {
	err := r.unlink(rel, 0)
	if err != nil && !missing(err) {
		return err
	}
	for dir := path.Dir(rel); pathname.Within(dir, top) && dir != top; dir = path.Dir(dir) {
		if errors.Is(err, errNoDir) {
			err = nil // dir is the missing directory
			continue
		}
		if err = r.unlink(dir, unix.AT_REMOVEDIR); err != nil && !missing(err) {
			if slices.Contains([]error{unix.ENOTEMPTY, unix.EEXIST, unix.EBUSY}, errors.Unwrap(err)) {
				return nil
			}
			return err
		}
	}
	return nil
}

// errNoDir is wrapped by the error for removing something from a missing directory.
var errNoDir = errors.New("no such directory")

func (r *reader) unlink(rel string, flags int) error {
	parent, err := r.openFD(path.Dir(rel), unix.O_PATH|unix.O_DIRECTORY)
	if missing(err) {
		return fmt.Errorf("%w: %w", errNoDir, err)
	}
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	if err := unix.Unlinkat(parent, path.Base(rel), flags); err != nil {
		return &os.PathError{Op: "remove", Path: r.abs(rel), Err: err}
	}
	return nil
}
