package mount

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	mountutils "k8s.io/mount-utils"
)

// Mounter adapts a [Kernel] to the interface that Kubernetes' storage code expects. It
// makes binds, tmpfs and file systems on block devices by system calls; mounts that need
// a helper program (nfs, cifs) go to mount(8).
type Mounter struct {
	kernel *Kernel
	// helper returns what runs mount(8). It is made on first use, because making it runs
	// umount(8).
	helper func() mountutils.Interface
}

var _ mountutils.Interface = (*Mounter)(nil)

// NewMounter returns a Mounter on k.
func NewMounter(k *Kernel) *Mounter {
	return &Mounter{kernel: k, helper: sync.OnceValue(func() mountutils.Interface {
		return mountutils.NewWithoutSystemd("")
	})}
}

// direct lists the file systems that are mounted without a helper program.
var direct = []string{"ext2", "ext3", "ext4", "xfs", "btrfs", "vfat", "iso9660", "squashfs", "erofs", "f2fs"}

// Mount mounts source at target, as mount(8) does with -t fsType and -o options.
func (m *Mounter) Mount(source, target, fsType string, options []string) error {
	return m.MountSensitive(source, target, fsType, options, nil)
}

// MountSensitive is Mount with further options that errors do not show.
func (m *Mounter) MountSensitive(source, target, fsType string, options, sensitive []string) error {
	return m.MountSensitiveWithoutSystemdWithMountFlags(source, target, fsType, options, sensitive, nil)
}

// MountSensitiveWithoutSystemd is MountSensitive, which never uses systemd.
func (m *Mounter) MountSensitiveWithoutSystemd(source, target, fsType string, options, sensitive []string) error {
	return m.MountSensitiveWithoutSystemdWithMountFlags(source, target, fsType, options, sensitive, nil)
}

// MountSensitiveWithoutSystemdWithMountFlags is MountSensitive with flags for mount(8).
// If there are any, it uses mount(8).
func (m *Mounter) MountSensitiveWithoutSystemdWithMountFlags(source, target, fsType string, options, sensitive,
	mountFlags []string,
) error {
	if len(sensitive) > 0 || len(mountFlags) > 0 {
		return m.helper().MountSensitiveWithoutSystemdWithMountFlags(source, target, fsType, options, sensitive, mountFlags)
	}
	words := splitAll(options)
	has := func(word string) bool { return slices.Contains(words, word) }
	switch {
	case has("bind"), has("rbind"):
		return m.bind(source, target, words)
	case has("remount"):
		return m.kernel.Reconfigure(target, slices.DeleteFunc(words, func(w string) bool { return w == "remount" }))
	case fsType == "tmpfs":
		return wrap(m.kernel.newFilesystem(fsType, source, target, parseOptions(words)), "mount tmpfs at %s", target)
	case slices.Contains(direct, fsType) && isBlockDevice(source):
		return m.kernel.Filesystem(source, target, fsType, words)
	}
	return m.helper().MountSensitiveWithoutSystemd(source, target, fsType, options, sensitive)
}

// bind makes a bind mount, or changes a mount's own options on remount. Like mount(8), it
// ignores options of a file system.
func (m *Mounter) bind(source, target string, words []string) error {
	o := parseOptions(words)
	has := func(word string) bool { return slices.Contains(words, word) }
	c := flagChange{set: o.set, clr: o.clr, recursive: has("rbind"), peer: !has("slave") && !has("rslave")}
	if !has("remount") {
		return wrap(m.kernel.bind(source, target, c), "bind %s to %s", source, target)
	}
	c.clr |= allAttributes &^ c.set // mount(8) replaces all flags
	err := m.kernel.onMount(target, func(fd int) error { return m.kernel.changeFlags(fd, c) })
	return wrap(err, "remount %s", target)
}

func isBlockDevice(path string) bool {
	_, err := blockDevice(path)
	return err == nil
}

func splitAll(options []string) []string {
	var words []string
	for _, o := range options {
		words = slices.AppendSeq(words, splitOptions(o))
	}
	return words
}

// Unmount removes every mount stacked at target. It does not follow a symbolic link.
func (m *Mounter) Unmount(target string) error {
	return m.kernel.Unmount(context.Background(), target)
}

// List returns the whole mount table.
func (m *Mounter) List() ([]mountutils.MountPoint, error) {
	rows, err := m.kernel.readMountinfo()
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	points := make([]mountutils.MountPoint, len(rows))
	for i, r := range rows {
		points[i] = mountutils.MountPoint{
			Device: r.source, Path: r.path, Type: r.fsType, Opts: slices.Concat(r.options, r.superOptions),
		}
	}
	return points, nil
}

// IsMountPoint reports whether file is the root of a mount, including a bind mount.
func (m *Mounter) IsMountPoint(file string) (bool, error) {
	info, err := m.kernel.Look(context.Background(), file)
	if err != nil {
		return false, err
	}
	if !info.Exists {
		return false, &fs.PathError{Op: "look at", Path: file, Err: fs.ErrNotExist}
	}
	return info.Mounted, nil
}

// IsLikelyNotMountPoint is the exact opposite of IsMountPoint.
func (m *Mounter) IsLikelyNotMountPoint(file string) (bool, error) {
	mounted, err := m.IsMountPoint(file)
	return err != nil || !mounted, err
}

// CanSafelySkipMountPointCheck returns true: Unmount succeeds if nothing is mounted.
func (m *Mounter) CanSafelySkipMountPointCheck() bool { return true }

// GetMountRefs returns the other mount points of the directory at path. A path that does
// not exist is not an error.
func (m *Mounter) GetMountRefs(path string) ([]string, error) {
	canonical, err := m.kernel.canonical(path)
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("mounts of %s: %w", path, err)
	}
	entries, err := m.kernel.table()
	if err != nil {
		return nil, fmt.Errorf("mounts of %s: %w", path, err)
	}
	return refsOf(canonical, entries), nil
}

// refsOf returns the other mount points of the directory at path.
func refsOf(path string, entries []Entry) (refs []string) {
	on, _ := MountOf(entries, path)
	root := filepath.Join(on.Root, strings.TrimPrefix(path, on.Path))
	for _, e := range entries {
		if e.Dev == on.Dev && e.Root == root && e.Path != path {
			refs = append(refs, e.Path)
		}
	}
	return refs
}

// wrap adds to a non-nil err what was attempted.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
