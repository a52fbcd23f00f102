package quota

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/beneath"
)

const (
	// maxDepth bounds how deep the walk goes: it holds a descriptor for each level.
	maxDepth = 256
	// maxLinked bounds how many files with several names are remembered as counted.
	// Beyond that, each name counts.
	maxLinked    = 1 << 16
	namesPerRead = 512
	blockSize    = 512 // of stat(2)
)

// Usage is how much a directory tree holds.
type Usage struct {
	// Bytes are allocated on disk, including those of directories.
	Bytes int64
	// Inodes includes the directory itself.
	Inodes int64
	// Partial is true if some of the usage could not be counted.
	Partial bool
}

// Measure counts what dir and everything below it hold. It skips other mounts and the
// targets of links, and counts a file with several names once. Files that come or go
// meanwhile may be counted or not. Measure fails only if dir cannot be read, or with
// the cause of ctx's end.
func Measure(ctx context.Context, dir *os.File) (Usage, error) {
	m := measure{linked: map[uint64]bool{}}
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return Usage{}, &os.PathError{Op: "stat", Path: dir.Name(), Err: err}
	}
	m.count(&st)
	fd, err := unix.Openat(int(dir.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Usage{}, &os.PathError{Op: "open", Path: dir.Name(), Err: err}
	}
	if err := m.dir(ctx, fd, 0); err != nil {
		return Usage{}, err
	}
	return m.Usage, nil
}

// measure is the state of one Measure.
type measure struct {
	Usage
	linked map[uint64]bool // by inode: files with several names that were counted
}

func (m *measure) count(st *unix.Stat_t) {
	if st.Mode&unix.S_IFMT != unix.S_IFDIR && st.Nlink > 1 {
		if m.linked[st.Ino] {
			return
		}
		if len(m.linked) < maxLinked {
			m.linked[st.Ino] = true
		}
	}
	m.Bytes += st.Blocks * blockSize
	m.Inodes++
}

// dir counts the content of the directory fd and closes fd.
func (m *measure) dir(ctx context.Context, fd, depth int) error {
	f := os.NewFile(uintptr(fd), ".")
	defer f.Close()
	for {
		names, err := f.Readdirnames(namesPerRead)
		for _, name := range names {
			if err := m.entry(ctx, fd, name, depth); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, unix.ENOENT) { // ENOENT: the directory was removed meanwhile
			return nil
		}
		if err != nil {
			m.Partial = true
			return nil
		}
	}
}

func (m *measure) entry(ctx context.Context, parent int, name string, depth int) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	fd, err := beneath.Open(parent, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_MAGICLINKS,
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EXDEV) {
		return nil // removed meanwhile, or a mount point
	}
	var st unix.Stat_t
	if err == nil {
		defer unix.Close(fd)
		err = unix.Fstat(fd, &st)
	}
	if err != nil {
		m.Partial = true
		return nil
	}
	m.count(&st)
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	// "." of the descriptor is the directory that was inspected, even if its name now
	// leads elsewhere.
	in, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil && depth < maxDepth {
		return m.dir(ctx, in, depth+1)
	}
	if err == nil {
		unix.Close(in)
	}
	m.Partial = true
	return nil
}
