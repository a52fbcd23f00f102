package file

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/manifest"
)

// errBusy means that a process has the file open for writing.
var errBusy = errors.New("being written; it is read after its writer closes it")

// isManifest reports whether a file with this name is a manifest.
func isManifest(name string) bool {
	return !strings.HasPrefix(name, ".") && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

// linksThrough reports whether manifests may be links through name. The kubelet updates a mounted
// ConfigMap by replacing this link.
func linksThrough(name string) bool { return name == "..data" }

// stamp identifies a file and its version.
type stamp struct {
	dev, ino     uint64
	size         int64
	mtime, ctime unix.Timespec
}

func stampOf(f *os.File) (stamp, error) {
	var st unix.Stat_t
	err := control(f, func(fd int) error { return unix.Fstat(fd, &st) })
	if err != nil {
		return stamp{}, fmt.Errorf("stat: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return stamp{}, errors.New("not a regular file")
	}
	return stamp{uint64(st.Dev), st.Ino, st.Size, st.Mtim, st.Ctim}, nil
}

// reading is a file to be read.
type reading struct {
	root *os.Root
	name string
	// known is the version that need not be read again.
	known stamp
	// whole means that an event says that the writer is done.
	whole bool
	// quiet is how long a file must be unchanged if neither an event nor a lease says that the
	// writer is done.
	quiet time.Duration
	// lease takes a read lease on the file.
	lease func(*os.File) error
}

// read returns the file's content and version, and nil content if the version is known. Under a
// lease, no process can write the file. On a file system without leases, the file must be whole or
// quiet, and must not change while it is read.
func (r reading) read() ([]byte, stamp, error) {
	// O_NONBLOCK, because opening a named pipe would block.
	f, err := r.root.OpenFile(r.name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, stamp{}, err
	}
	defer f.Close()
	before, err := stampOf(f)
	if err != nil {
		return nil, stamp{}, err
	}
	if before == r.known {
		return nil, before, nil
	}
	if before.size > manifest.MaxBytes {
		return nil, before, fmt.Errorf("found %d bytes, want at most %d", before.size, manifest.MaxBytes)
	}
	// Closing f ends the lease.
	switch err := r.lease(f); {
	case errors.Is(err, unix.EAGAIN):
		return nil, stamp{}, errBusy
	case err == nil:
		// A process that wrote the file before the lease began has changed the stamp.
		if before, err = stampOf(f); err != nil {
			return nil, stamp{}, err
		}
	case !r.whole:
		age := time.Since(time.Unix(before.mtime.Unix()))
		if age >= 0 && age < r.quiet {
			return nil, stamp{}, errBusy
		}
	}
	b, err := io.ReadAll(io.LimitReader(f, manifest.MaxBytes+1))
	if err != nil {
		return nil, stamp{}, err
	}
	after, err := stampOf(f)
	if err != nil {
		return nil, stamp{}, err
	}
	if after != before {
		return nil, stamp{}, errBusy
	}
	return b, after, nil
}

// lease takes a read lease. The kernel grants one only while no process has the file open for
// writing, and blocks a process that then opens it for writing.
func lease(f *os.File) error {
	return control(f, func(fd int) error {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
		return err
	})
}

func control(f *os.File, do func(fd int) error) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := c.Control(func(fd uintptr) { inner = do(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// dir is the open directory.
type dir struct {
	root *os.Root
	// mounted means that it is the root of a mount.
	mounted bool
}

// openDir opens the directory. The provider does not keep it open, because that would prevent the
// unmounting of its file system.
func openDir(path string) (*dir, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open: %w", cause(err))
	}
	d := &dir{root: root}
	f, err := root.Open(".")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open: %w", cause(err)), root.Close())
	}
	defer f.Close()
	var st unix.Statx_t
	err = control(f, func(fd int) error { return unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS, &st) })
	if err != nil {
		return nil, errors.Join(fmt.Errorf("statx: %w", err), root.Close())
	}
	d.mounted = st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
	return d, nil
}

// list returns the names of the manifests, with false because no event says that they are whole.
func (d *dir) list() (map[string]bool, error) {
	f, err := d.root.Open(".")
	if err != nil {
		return nil, fmt.Errorf("open: %w", cause(err))
	}
	defer f.Close()
	names := map[string]bool{}
	for {
		some, err := f.Readdirnames(1024)
		for _, name := range some {
			if isManifest(name) {
				names[name] = false
			}
		}
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list: %w", cause(err))
		}
		if len(names) > maxFiles {
			return nil, fmt.Errorf("found more than %d manifests", maxFiles)
		}
	}
}

// isMissing reports whether the name itself does not exist. A link to nothing is a file that cannot be
// read.
func (d *dir) isMissing(name string) bool {
	_, err := d.root.Lstat(name)
	return errors.Is(err, fs.ErrNotExist)
}

// cause returns the error without its path, which the messages already contain.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
