package file

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// fsnotify does not report that a writer closed a file, which is the event that matters most here.
// So this uses inotify directly.

// The events to watch for in the directory, and in the nearest existing directory above it.
const (
	dirMask = unix.IN_CLOSE_WRITE | unix.IN_CREATE | unix.IN_ATTRIB | unix.IN_DELETE |
		unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
	aboveMask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
		unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
)

// change is a set of events in the directory.
type change struct {
	// names are the files to read; true means that an event says that the file is whole.
	names map[string]bool
	// rescan means that the whole directory must be read and the watcher armed again.
	rescan bool
}

// watcher watches one directory, which need not exist.
type watcher struct {
	dir     string
	file    *os.File
	changes chan change

	// mu guards next and the watch descriptors of dir (here) and of the nearest existing directory
	// above it (above); -1 means none.
	mu          sync.Mutex
	here, above int
	// next is the element of dir's path to wait for in above.
	next string
}

// errNoWatch means that other programs of the node have taken every inotify instance or watch.
var errNoWatch = errors.New("the kernel has no inotify watch left; raise fs.inotify.max_user_watches and " +
	"fs.inotify.max_user_instances")

// newWatcher returns a watcher that watches nothing until arm is called.
func newWatcher(dir string) (*watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if errors.Is(err, unix.EMFILE) {
		return nil, errNoWatch
	}
	if err != nil {
		return nil, fmt.Errorf("watch %s: inotify_init1: %w", dir, err)
	}
	return &watcher{dir: dir, file: os.NewFile(uintptr(fd), "inotify"), changes: make(chan change), here: -1, above: -1},
		nil
}

// arm watches whatever is now at the directory's path. After an error, changes in it go unnoticed.
// A nil watcher is one that newWatcher could not make for lack of an inotify instance.
func (w *watcher) arm() error {
	if w == nil {
		return errNoWatch
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	// nearest may leave watches on other directories. parse ignores the events of their
	// descriptors.
	above, next, wd, err := nearest(w.dir, func(dir string) (int, error) { return w.add(dir, aboveMask) })
	if err != nil {
		return fmt.Errorf("watch %s: %w", above, err)
	}
	w.drop(w.above, wd)
	w.above, w.next = wd, next
	wd, err = w.add(w.dir, dirMask)
	if err != nil {
		wd = -1
	}
	w.drop(w.here, wd)
	w.here = wd
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("watch %s: %w", w.dir, err)
	}
	return nil
}

// nearest calls add with the nearest existing directory above dir, and returns that directory and
// the element of dir's path to wait for in it.
func nearest(dir string, add func(string) (int, error)) (above, next string, wd int, err error) {
	for {
		above, next = filepath.Dir(dir), filepath.Base(dir)
		wd, err = add(above)
		for missing(err) && above != filepath.Dir(above) {
			above, next = filepath.Dir(above), filepath.Base(above)
			wd, err = add(above)
		}
		if err != nil || above == filepath.Dir(dir) {
			return above, next, wd, err
		}
		// A directory that was created before the watch began has no event.
		if info, err := os.Stat(filepath.Join(above, next)); err != nil || !info.IsDir() {
			return above, next, wd, nil
		}
	}
}

func missing(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) }

func (w *watcher) add(dir string, mask uint32) (int, error) {
	wd := -1
	err := control(w.file, func(fd int) (err error) {
		wd, err = unix.InotifyAddWatch(fd, dir, mask|unix.IN_ONLYDIR)
		return err
	})
	if errors.Is(err, unix.ENOSPC) {
		return wd, errNoWatch
	}
	return wd, err
}

// drop removes the old watch unless it is also the new one.
func (w *watcher) drop(old, now int) {
	if old < 0 || old == now {
		return
	}
	// This fails if the watched directory, and the watch with it, is gone.
	_ = control(w.file, func(fd int) error {
		_, err := unix.InotifyRmWatch(fd, uint32(old))
		return err
	})
}

// run sends changes until ctx ends or the watcher is closed.
func (w *watcher) run(ctx context.Context) {
	// A read returns whole events; 64 KiB hold some hundred of the longest.
	buf := make([]byte, 64<<10)
	for {
		n, err := w.file.Read(buf)
		if err != nil {
			return // closed
		}
		if c := w.parse(buf[:n]); c.rescan || len(c.names) > 0 {
			select {
			case w.changes <- c:
			case <-ctx.Done():
				return
			}
		}
	}
}

func (w *watcher) parse(b []byte) change {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := change{names: map[string]bool{}}
	for len(b) >= unix.SizeofInotifyEvent {
		wd := int(int32(binary.NativeEndian.Uint32(b[0:])))
		mask := binary.NativeEndian.Uint32(b[4:])
		size := binary.NativeEndian.Uint32(b[12:])
		name := strings.TrimRight(string(b[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+size]), "\x00")
		b = b[unix.SizeofInotifyEvent+size:]
		switch {
		case mask&unix.IN_Q_OVERFLOW != 0:
			c.rescan = true
		case wd == w.here && (name == "" || linksThrough(name)):
			// The directory was moved, removed or unmounted, or a link that manifests lead through
			// was replaced (..data of a ConfigMap).
			c.rescan = true
		case wd == w.here && isManifest(name):
			c.names[name] = c.names[name] || mask&(unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO) != 0
		case wd == w.above && (name == "" || name == w.next):
			c.rescan = true
		}
	}
	return c
}

// close makes run return.
func (w *watcher) close() error { return w.file.Close() }
