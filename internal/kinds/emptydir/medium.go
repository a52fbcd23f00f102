package emptydir

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/poddir"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// medium describes where a volume's data lives.
type medium struct {
	// fsType is the file system mounted on the directory; "" means none.
	fsType string
	// sizeBytes limits a file system in memory; 0 means its default. A directory on
	// disk has no hard limit.
	sizeBytes int64
	// pageSize is in bytes and for hugetlbfs only.
	pageSize int64
	// mode is the mode of the volume's directory.
	mode os.FileMode
}

// parseMedium returns the medium of a volume. One in memory has at least the size that it
// has grown to.
func parseMedium(v state.Volume) (medium, error) {
	spec := *v.Spec
	src, err := decode(spec)
	if err != nil {
		return medium{}, err
	}
	m := medium{mode: defaultMode}
	if src.Medium == corev1.StorageMediumMemory {
		m.mode = memoryMode
	}
	if src.Mode != nil {
		if *src.Mode < 0 || *src.Mode > maxMode {
			return medium{}, fmt.Errorf("volume %s: emptyDir.mode: found %#o, want 0 to %#o", spec.Name, *src.Mode, maxMode)
		}
		m.mode = fileMode(*src.Mode)
	}
	if src.SizeLimit != nil {
		if m.sizeBytes = src.SizeLimit.Value(); m.sizeBytes < 0 {
			return medium{}, fmt.Errorf("volume %s: emptyDir.sizeLimit: %s is negative", spec.Name, src.SizeLimit)
		}
	}
	switch name := string(src.Medium); {
	case src.Medium == corev1.StorageMediumDefault:
	case src.Medium == corev1.StorageMediumMemory:
		m.fsType = "tmpfs"
	case src.Medium == corev1.StorageMediumHugePages:
		m.fsType = "hugetlbfs"
		m.pageSize, err = defaultPageSize()
	case strings.HasPrefix(name, string(corev1.StorageMediumHugePagesPrefix)):
		m.fsType = "hugetlbfs"
		m.pageSize, err = parsePageSize(strings.TrimPrefix(name, string(corev1.StorageMediumHugePagesPrefix)))
	default:
		err = errors.New(`not one of "", Memory, HugePages, HugePages-<size>`)
	}
	if err != nil {
		return medium{}, fmt.Errorf("volume %s: emptyDir.medium %q: %w", spec.Name, src.Medium, err)
	}
	if m.fsType == "tmpfs" {
		m.sizeBytes = max(m.sizeBytes, v.SizeBytes)
	}
	return m, nil
}

// Limited cheaply reports whether the volume may have a limit: if it has none, its
// source does not contain the field.
func Limited(spec state.Spec) bool { return bytes.Contains(spec.Config, []byte(`"sizeLimit"`)) }

func parsePageSize(s string) (int64, error) {
	q, err := resource.ParseQuantity(s)
	if err != nil {
		return 0, fmt.Errorf("page size: %w", err)
	}
	size := q.Value()
	if size <= 0 || size&(size-1) != 0 {
		return 0, fmt.Errorf("page size: %s is not a power of two", s)
	}
	return size, nil
}

// defaultPageSize returns the kernel's default size of huge pages.
func defaultPageSize() (int64, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var kib int64
		if n, _ := fmt.Sscanf(lines.Text(), "Hugepagesize: %d kB", &kib); n == 1 {
			return kib << 10, nil
		}
	}
	return 0, errors.Join(errors.New("the kernel has no huge pages"), lines.Err())
}

// checkMounted returns an error unless the file system mounted at dir matches m.
func (d *Driver) checkMounted(ctx context.Context, dir poddir.Dir, m medium) error {
	path := dir.Path()
	entries, err := d.c.Kernel.List(ctx, path)
	if err != nil {
		return err
	}
	have := ""
	for _, e := range entries {
		if e.Path == path {
			have = e.FSType // the topmost comes last
		}
	}
	if have != m.fsType {
		return fmt.Errorf("a %s is mounted at %s, but the volume needs %s", have, path, m)
	}
	if m.pageSize == 0 {
		return nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	if int64(st.Bsize) != m.pageSize {
		return fmt.Errorf("a hugetlbfs with pages of %d bytes is mounted at %s, but the volume needs %s", st.Bsize, path, m)
	}
	return nil
}

// fileMode converts a mode from Kubernetes to Go, where the sticky bit is elsewhere.
func fileMode(mode int32) os.FileMode {
	m := os.FileMode(mode & 0o777) //nolint:gosec // no negative number
	if mode&unix.S_ISVTX != 0 {
		m |= os.ModeSticky
	}
	return m
}

// dirMode returns the mode with which the directory itself is made.
func (m medium) dirMode() os.FileMode {
	if m.fsType == "" {
		return m.firstMode()
	}
	return coveredMode
}

// firstMode returns the volume's mode until it is handed over: one that every user has by
// default, or, if the pod asks for another mode, one that lets no user in until that mode is set.
func (m medium) firstMode() os.FileMode {
	if m.mode == defaultMode || m.mode == memoryMode && m.fsType != "" {
		return m.mode
	}
	return coveredMode
}

func (m medium) String() string {
	switch {
	case m.fsType == "":
		return "a plain directory"
	case m.pageSize != 0:
		return fmt.Sprintf("a hugetlbfs with pages of %d bytes", m.pageSize)
	}
	return "a " + m.fsType
}

// isMarked reports whether the volume was handed over to its pod.
func isMarked(scratch poddir.Dir) bool {
	s, err := scratch.Open()
	if err != nil {
		return false
	}
	defer s.Close()
	var st unix.Stat_t
	err = unix.Fstatat(int(s.Fd()), mark, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG
}

func writeMark(scratch *os.File) error {
	fd, err := unix.Openat(int(scratch.Fd()), mark, unix.O_WRONLY|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o640)
	if err != nil {
		return &os.PathError{Op: "create", Path: scratch.Name() + "/" + mark, Err: err}
	}
	return unix.Close(fd)
}
