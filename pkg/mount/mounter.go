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

	"github.com/csi-volmgr/csi-volmgr/pkg/pathname"
)

// Mounter gives a [Kernel] the shape that Kubernetes' storage code expects.
// Binds, tmpfs and file systems on block devices are made by system calls; a
// mount that needs a program of its own (nfs, cifs) goes to mount(8).
type Mounter struct {
	kernel *Kernel
	// helper runs mount(8). It is made when first needed, as making it runs umount(8).
	helper func() mountutils.Interface
}

var _ mountutils.Interface = (*Mounter)(nil)

// NewMounter returns a Mounter on k.
func NewMounter(k *Kernel) *Mounter {
	return &Mounter{kernel: k, helper: sync.OnceValue(func() mountutils.Interface {
		return mountutils.NewWithoutSystemd("")
	})}
}

// direct are the file systems that are mounted without a helper program.
var direct = []string{"ext2", "ext3", "ext4", "xfs", "btrfs", "vfat", "iso9660", "squashfs", "erofs", "f2fs"}

// Mount mounts source at target, as mount(8) would with -t fsType and -o options.
func (m *Mounter) Mount(source, target, fsType string, options []string) error {
	return m.MountSensitive(source, target, fsType, options, nil)
}

// MountSensitive is Mount with further options that no error shows.
func (m *Mounter) MountSensitive(source, target, fsType string, options, sensitive []string) error {
	return m.MountSensitiveWithoutSystemdWithMountFlags(source, target, fsType, options, sensitive, nil)
}

// MountSensitiveWithoutSystemd is MountSensitive: systemd is never asked.
func (m *Mounter) MountSensitiveWithoutSystemd(source, target, fsType string, options, sensitive []string) error {
	return m.MountSensitiveWithoutSystemdWithMountFlags(source, target, fsType, options, sensitive, nil)
}

// MountSensitiveWithoutSystemdWithMountFlags is MountSensitive with flags for
// mount(8); where there are any, mount(8) is used.
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
		return m.kernel.Reconfigure(target, without(words, "remount"))
	case fsType == "tmpfs":
		return wrap(m.kernel.newFilesystem(fsType, source, target, parseOptions(words)), "mount tmpfs at %s", target)
	case slices.Contains(direct, fsType) && isBlockDevice(source):
		return m.kernel.Filesystem(source, target, fsType, words)
	}
	return m.helper().MountSensitiveWithoutSystemd(source, target, fsType, options, sensitive)
}

// bind binds, or changes a mount's own options. Options of a file system mean
// nothing to a bind, and are passed over as mount(8) does.
func (m *Mounter) bind(source, target string, words []string) error {
	o := parseOptions(words)
	c := flagChange{set: o.set, clr: o.clr, recursive: slices.Contains(words, "rbind")}
	if !slices.Contains(words, "remount") {
		clean, err := cleanPath(source)
		if err == nil {
			err = m.kernel.bind(clean, target, c)
		}
		return wrap(err, "bind %s to %s", source, target)
	}
	c.clr |= allAttributes &^ c.set // mount(8) replaces them all
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

func without(words []string, word string) []string {
	return slices.DeleteFunc(words, func(w string) bool { return w == word })
}

// Unmount removes every mount stacked at target; it does not follow a link.
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

// IsMountPoint reports whether file is the root of a mount; bind mounts are seen.
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

// IsLikelyNotMountPoint is the opposite of IsMountPoint, and as exact.
func (m *Mounter) IsLikelyNotMountPoint(file string) (bool, error) {
	mounted, err := m.IsMountPoint(file)
	return err != nil || !mounted, err
}

// CanSafelySkipMountPointCheck is true: to unmount what is not mounted is no error.
func (m *Mounter) CanSafelySkipMountPointCheck() bool { return true }

// GetMountRefs returns the other paths at which what is at path is mounted. That
// nothing exists there is no error.
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
	var on Entry // the mount that path is on
	for _, e := range entries {
		if pathname.Within(canonical, e.Path) && len(e.Path) >= len(on.Path) {
			on = e
		}
	}
	root := filepath.Join(on.Root, strings.TrimPrefix(canonical, on.Path))
	var refs []string
	for _, e := range entries {
		if e.Dev == on.Dev && e.Root == root && e.Path != canonical {
			refs = append(refs, e.Path)
		}
	}
	return refs, nil
}

// wrap says of an error what was attempted.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
