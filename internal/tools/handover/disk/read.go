// Package disk is the host side of package handover: it reads what a kubelet left below a node's
// root directory, writes what a kubelet looks for, and detects a running kubelet.
//
// Owns: access to these files through descriptors and without following links (rule 8), and their
// format.
//
// Does not: decide what any of it means, mount, unmount, or open anything that is backed by
// storage: it only looks at a volume's path.
//
// Concurrency: any goroutine may call the functions.
package disk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/beneath"
	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/tools/handover"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const (
	// maxNotes limits the size in bytes of a kubelet's notes, which have some hundred.
	maxNotes = 64 << 10
	// lookTime is how long the kernel may take to look at a path.
	lookTime = 10 * time.Second
)

const (
	csiDir    = "plugins/kubernetes.io/csi"
	deviceDir = csiDir + "/volumeDevices"
)

// Read returns what is below the root directory. It fails if anything cannot be read, because
// nothing may be taken over that is only partly known.
func Read(ctx context.Context, root string, k *mount.Kernel) (handover.Disk, error) {
	r, err := open(ctx, root, k)
	if err != nil {
		return handover.Disk{}, fmt.Errorf("read what is below %s: %w", root, err)
	}
	defer r.close()
	for _, part := range []func() error{r.readMounts, r.readPods, r.readStaged, r.readBlocks} {
		if err := part(); err != nil {
			return handover.Disk{}, fmt.Errorf("read what is below %s: %w", root, err)
		}
		if ctx.Err() != nil {
			return handover.Disk{}, context.Cause(ctx)
		}
	}
	return r.disk, nil
}

// reader is the state of one call of Read, and gives Keeper access to the root.
type reader struct {
	ctx    context.Context
	root   string
	top    int // an O_PATH descriptor of root; an os.File costs another system call and a finalizer
	kernel *mount.Kernel
	disk   handover.Disk
}

func open(ctx context.Context, root string, k *mount.Kernel) (*reader, error) {
	top, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: root, Err: err}
	}
	return &reader{ctx: ctx, root: root, top: top, kernel: k}, nil
}

func (r *reader) close() { unix.Close(r.top) }

func (r *reader) readMounts() error {
	real, err := filepath.EvalSymlinks(r.root)
	if err != nil {
		return err
	}
	entries, err := r.kernel.List(r.ctx, real)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if rel, ok := strings.CutPrefix(e.Path, real+"/"); ok {
			r.disk.Mounts = append(r.disk.Mounts, filepath.Join(r.root, rel))
		}
	}
	slices.Sort(r.disk.Mounts)
	r.disk.Mounts = slices.Compact(r.disk.Mounts)
	return nil
}

// readPods reads pods/UID/volumes/PLUGIN/NAME and pods/UID/volumeDevices/PLUGIN/NAME.
func (r *reader) readPods() error {
	return r.eachDir("pods", func(uid string) error {
		err := r.eachDir("pods/"+uid+"/volumes", func(plugin string) error {
			dir := "pods/" + uid + "/volumes/" + plugin
			return r.eachDir(dir, func(name string) error { return r.readVolume(uid, plugin, name, dir+"/"+name) })
		})
		if err != nil {
			return err
		}
		return r.eachDir("pods/"+uid+"/volumeDevices", func(plugin string) error {
			dir := "pods/" + uid + "/volumeDevices/" + plugin
			return r.eachEntry(dir, func(e os.DirEntry) error {
				r.disk.Devices = append(r.disk.Devices, handover.Device{
					Pod: state.PodUID(uid), Plugin: plugin, Name: e.Name(),
					Path: r.abs(dir + "/" + e.Name()),
				})
				return nil
			})
		})
	})
}

func (r *reader) readVolume(uid, plugin, name, rel string) (err error) {
	v := handover.Volume{Pod: state.PodUID(uid), Plugin: plugin, Name: name, Path: r.abs(rel)}
	at := rel
	if plugin == "kubernetes.io~csi" {
		at += "/mount"
		if v.Notes, err = r.readNotes(rel); err != nil {
			return err
		}
	}
	if v.Seen, err = r.look(at); err != nil {
		return err
	}
	if plugin == "kubernetes.io~empty-dir" {
		if v.Files = v.Seen.Mounted; !v.Files { // nothing behind a mount is opened
			err = r.eachEntry(rel, func(os.DirEntry) error { v.Files = true; return nil })
		}
	}
	r.disk.Volumes = append(r.disk.Volumes, v)
	return err
}

// readStaged reads plugins/kubernetes.io/csi/DRIVER/HASH, and csi/pv/NAME, which kubelets used before
// 1.24.
func (r *reader) readStaged() error {
	return r.eachDir(csiDir, func(driver string) error {
		if driver == "volumeDevices" {
			return nil
		}
		return r.eachDir(csiDir+"/"+driver, func(name string) (err error) {
			dir := csiDir + "/" + driver + "/" + name
			s := handover.Staged{Path: r.abs(dir + "/globalmount")}
			if s.Notes, err = r.readNotes(dir); err != nil {
				return err
			}
			if s.Seen, err = r.look(dir + "/globalmount"); err != nil {
				return err
			}
			if s.Notes.Found || s.Seen.Exists {
				r.disk.Staged = append(r.disk.Staged, s)
			}
			return nil
		})
	})
}

// readBlocks reads plugins/kubernetes.io/csi/volumeDevices.
func (r *reader) readBlocks() error {
	found := map[string]bool{}
	note := func(name string) error { found[name] = true; return nil }
	for _, dir := range []string{deviceDir + "/staging", deviceDir + "/publish", deviceDir} {
		if err := r.eachDir(dir, note); err != nil {
			return err
		}
	}
	delete(found, "staging")
	delete(found, "publish")
	for _, name := range slices.Sorted(maps.Keys(found)) {
		b := handover.Block{Name: name, Published: map[state.PodUID]state.Seen{}}
		var err error
		if b.Notes, err = r.readNotes(deviceDir + "/" + name + "/data"); err != nil {
			return err
		}
		if b.Stage, err = r.look(deviceDir + "/staging/" + name); err != nil {
			return err
		}
		publish := deviceDir + "/publish/" + name
		err = r.eachEntry(publish, func(e os.DirEntry) (err error) {
			b.Published[state.PodUID(e.Name())], err = r.look(publish + "/" + e.Name())
			return err
		})
		if err != nil {
			return err
		}
		r.disk.Blocks = append(r.disk.Blocks, b)
	}
	return nil
}

func (r *reader) abs(rel string) string { return filepath.Join(r.root, rel) }

func (r *reader) look(rel string) (state.Seen, error) {
	ctx, cancel := context.WithTimeoutCause(r.ctx, lookTime, fmt.Errorf("no answer from the kernel within %v", lookTime))
	defer cancel()
	i, err := r.kernel.Look(ctx, r.abs(rel))
	return state.Seen(i), err
}

// readNotes reads the kubelet's file in a directory. A missing or unintelligible file is not an error.
func (r *reader) readNotes(dir string) (handover.Notes, error) {
	f, err := r.openAt(dir+"/"+handover.NotesName, unix.O_RDONLY|unix.O_NONBLOCK)
	if missing(err) {
		return handover.Notes{}, nil
	}
	if err != nil {
		return handover.Notes{}, err
	}
	defer f.Close()
	n := handover.Notes{Found: true}
	info, err := f.Stat()
	if err != nil {
		return n, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxNotes {
		n.Problem = fmt.Sprintf("it is no regular file of at most %d bytes", maxNotes)
		return n, nil
	}
	b, err := io.ReadAll(io.LimitReader(f, maxNotes))
	if err != nil {
		return n, err
	}
	if err := json.Unmarshal(b, &n.Values); err != nil {
		n.Values, n.Problem = nil, err.Error()
	} else if n.Values == nil {
		n.Problem = "it is empty"
	}
	return n, nil
}

// eachDir calls do for each subdirectory of a directory, which need not exist.
func (r *reader) eachDir(rel string, do func(name string) error) error {
	return r.eachEntry(rel, func(e os.DirEntry) error {
		if !e.IsDir() {
			return nil
		}
		return do(e.Name())
	})
}

// eachEntry calls do for each entry of a directory, sorted by name. It does not stat the entries,
// because one may be a mount whose storage hangs.
func (r *reader) eachEntry(rel string, do func(os.DirEntry) error) error {
	dir, err := r.openAt(rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return fmt.Errorf("read %s: %w", r.abs(rel), err)
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		if err := do(e); err != nil {
			return err
		}
	}
	return nil
}

func missing(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
}

// openAt opens a path below the root; no element of rel may be a link or a mount.
func (r *reader) openAt(rel string, flags int) (*os.File, error) {
	fd, err := r.openFD(rel, flags)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), rel), nil
}

func (r *reader) openFD(rel string, flags int) (int, error) {
	fd, err := beneath.Open(r.top, rel, &unix.OpenHow{
		Flags:   uint64(flags | unix.O_CLOEXEC | unix.O_NOFOLLOW),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: r.abs(rel), Err: err}
	}
	return fd, nil
}
