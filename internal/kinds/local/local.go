// Package local is the built-in kind local: a directory or a block device of this node
// as a PersistentVolume, if the operator allows its path.
//
// A directory is bind-mounted at the pod's directory, a device's file system is mounted
// there, and for a raw block volume the device itself is bound there. A device is
// formatted only if reading proves that it is blank: any other content may be a user's
// data.
package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/host/diskfs"
	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/disk"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/hostpath"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/poddir"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/program"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Kind is the name of this kind.
const Kind = kind.Local

// coveredMode is the mode of the mount point: if the mount is missing, no container's
// user can write to the node's disk.
const coveredMode = 0o700

// ErrType means that the file at the path cannot be the volume.
var ErrType = errors.New("neither a directory nor a block device that fits the volume's mode")

// Config configures a Driver. All fields except Allow are required.
type Config struct {
	Layout state.Layout
	Kernel *mount.Kernel
	// Run runs mkfs and similar programs, as (*program.Runner).Run does.
	Run func(ctx context.Context, c program.Command) error
	// Allow lists directories as in hostpath.Config. It applies to the path without
	// symbolic links.
	Allow []string
}

// Driver implements local volumes. It is safe for concurrent use.
type Driver struct {
	poddir.PublishOnly
	poddir.Remover
	c       Config
	mounter *mount.Mounter
}

// New returns a Driver.
func New(c Config) *Driver {
	return &Driver{
		poddir.PublishOnly{Kind: Kind},
		poddir.Remover{Layout: c.Layout, Kernel: c.Kernel},
		c,
		mount.NewMounter(c.Kernel),
	}
}

// Publish mounts the volume at the pod's directory, unless it is mounted already.
func (d *Driver) Publish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	m, dir, err := poddir.Begin(ctx, d.c.Layout, v, pod)
	if err != nil {
		return err
	}
	var src corev1.LocalVolumeSource
	if err := json.Unmarshal(v.Spec.Config, &src); err != nil {
		return poddir.Refused("Publish", fmt.Errorf("volume %s: local: %w", v.Spec.Name, err))
	}
	if err := d.publish(ctx, v, request{dir, src, m, pod}); err != nil {
		err = fmt.Errorf("volume %s: local path %q: %w", v.Spec.Name, src.Path, err)
		return refusal("Publish", err)
	}
	return nil
}

// refusal turns err into a refusal if repeating the call would not help.
func refusal(call string, err error) error {
	for _, reason := range []error{hostpath.ErrDenied, ErrType, diskfs.ErrType, diskfs.ErrOption} {
		if errors.Is(err, reason) {
			return poddir.Refused(call, err)
		}
	}
	return err
}

// request holds the arguments of one Publish.
type request struct {
	dir poddir.Dir
	src corev1.LocalVolumeSource
	m   state.Mount
	pod state.PodUID
}

func (d *Driver) publish(ctx context.Context, v state.Volume, r request) error {
	path, format, err := d.find(r.src.Path)
	if err != nil {
		return err
	}
	device := format == unix.S_IFBLK
	if !device && (format != unix.S_IFDIR || v.Spec.Mode == state.Block) {
		return ErrType
	}
	if v.Spec.Mode == state.Block {
		return disk.PublishNode(ctx, d.c.Kernel, r.dir, path)
	}
	if _, err := r.dir.MakeNew(coveredMode); err != nil {
		return err
	}
	seen, err := d.c.Kernel.Look(ctx, r.dir.Path())
	if err != nil || seen.Mounted {
		return err
	}
	if err := d.mount(ctx, *v.Spec, r, location{path, device}); err != nil {
		return err
	}
	if err := d.giveToGroup(ctx, v, r); err != nil {
		// A repeated call expects that nothing is mounted. The unmount ignores the end
		// of ctx, which may be the cause of err.
		return errors.Join(err, d.c.Kernel.Unmount(context.WithoutCancel(ctx), r.dir.Path()))
	}
	return nil
}

// giveToGroup gives the mounted volume to the pod's fsGroup.
func (d *Driver) giveToGroup(ctx context.Context, v state.Volume, r request) error {
	if r.m.FSGroup == nil {
		return nil
	}
	shared, err := d.sharesFS(ctx, r.dir.Path())
	if err != nil {
		return err
	}
	return disk.GiveToGroup(ctx, v, r.pod, r.dir, shared)
}

// sharesFS reports whether only a directory of a file system is mounted at path. A link to a file of the rest could
// give that file away.
func (d *Driver) sharesFS(ctx context.Context, path string) (bool, error) {
	table, err := d.c.Kernel.List(ctx, path)
	if err != nil {
		return false, err
	}
	at, found := mount.MountOf(table, path)
	return !found || at.Path != path || at.Root != "/", nil
}

// find returns the path without symbolic links, and the format of the file there.
func (d *Driver) find(path string) (real string, format uint32, err error) {
	if !filepath.IsAbs(path) {
		return "", 0, fmt.Errorf("%w: it is not an absolute path", hostpath.ErrDenied)
	}
	if real, err = filepath.EvalSymlinks(path); err != nil {
		return "", 0, err
	}
	dirs := hostpath.Roots(d.c.Allow)
	if hostpath.Allowed(dirs, real) == "" {
		return "", 0, fmt.Errorf("%w: it leads to %s, which is not at or below any of the paths that the node's operator "+
			"allows %q (--host-path-allow)",
			hostpath.ErrDenied, real, d.c.Allow)
	}
	format, err = d.formatOf(real, slices.Contains(dirs, real) || slices.Contains(d.c.Allow, real))
	return real, format, err
}

// formatOf returns the format of the file at a path without symbolic links. A block
// device counts only if the kernel made its node or the operator listed it: a container
// can make a node for any disk of the host in its volume.
func (d *Driver) formatOf(real string, named bool) (uint32, error) {
	f, err := d.c.Kernel.Open(real)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, &os.PathError{Op: "stat", Path: real, Err: err}
	}
	format := st.Mode & uint32(unix.S_IFMT)
	if format != unix.S_IFBLK || named {
		return format, nil
	}
	made, err := d.c.Kernel.OnDevtmpfs(f)
	if err == nil && !made {
		err = fmt.Errorf("%w: device node %s was not made by the kernel (it is not on a devtmpfs); use the device's path "+
			"below /dev, or allow this one (--host-path-allow)",
			hostpath.ErrDenied, real)
	}
	return format, err
}

// location is the file that a volume's path leads to.
type location struct {
	path   string
	device bool
}

// mount mounts the directory or device. The kernel opens it without following a link.
func (d *Driver) mount(ctx context.Context, spec state.Spec, r request, a location) error {
	want := disk.Want{FSType: fsTypeOf(r.src), ReadOnly: r.m.ReadOnly, Flags: spec.MountFlags}
	if !a.device {
		if err := diskfs.CheckWords(spec.MountFlags); err != nil {
			return err
		}
		flags := append([]string{"bind"}, spec.MountFlags...)
		if r.m.Context[kind.PropagationKey] != kind.Bidirectional {
			flags = append(flags, "slave")
		}
		if r.m.ReadOnly {
			flags = append(flags, "ro")
		}
		return d.mounter.Mount(a.path, r.dir.Path(), "", flags)
	}
	if err := (disk.Device{Path: a.path, Run: d.c.Run}).Prepare(ctx, want); err != nil {
		return err
	}
	mount := func(flags []string) error { return d.c.Kernel.Filesystem(a.path, r.dir.Path(), want.FSType, flags) }
	err := want.Mount(ctx, mount, func() (bool, error) { return disk.NewHost(d.c.Run).Twin(a.path) })
	switch {
	case err != nil && want.FSType == "xfs" && holdsXFS(a.path):
		return fmt.Errorf("%w (the device has an XFS file system; another device that leads to the same disk may have it "+
			"mounted)", err)
	case err != nil:
		return fmt.Errorf("%w (a device that has data is never formatted; if the data is not needed, remove it with "+
			"wipefs --all and blkdiscard --zeroout)", err)
	}
	return nil
}

// holdsXFS reports whether a device begins as an XFS file system does.
func holdsXFS(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	magic := make([]byte, 4)
	_, err = f.ReadAt(magic, 0)
	return err == nil && string(magic) == "XFSB"
}

func fsTypeOf(src corev1.LocalVolumeSource) string {
	if src.FSType == nil || *src.FSType == "" {
		return disk.DefaultFS
	}
	return *src.FSType
}

// Expand grows the file system of a device to the device's current size. For a
// directory it does nothing.
func (d *Driver) Expand(ctx context.Context, v state.Volume, pod state.PodUID, bytes int64) (int64, error) {
	dir, err := poddir.Of(d.c.Layout, v, pod)
	if err != nil {
		return 0, poddir.Refused("Expand", err)
	}
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	var src corev1.LocalVolumeSource
	if err := json.Unmarshal(v.Spec.Config, &src); err != nil {
		return 0, poddir.Refused("Expand", fmt.Errorf("volume %s: local: %w", v.Spec.Name, err))
	}
	size, err := d.expand(ctx, *v.Spec, src, dir, bytes)
	if err != nil {
		return 0, refusal("Expand", fmt.Errorf("volume %s: local path %q: grow: %w", v.Spec.Name, src.Path, err))
	}
	return size, nil
}

func (d *Driver) expand(ctx context.Context, spec state.Spec, src corev1.LocalVolumeSource, dir poddir.Dir,
	bytes int64,
) (int64, error) {
	path, format, err := d.find(src.Path)
	if err != nil || format != unix.S_IFBLK {
		return bytes, err
	}
	device := disk.Device{Path: path, Run: d.c.Run}
	if spec.Mode == state.Block {
		return device.Size()
	}
	if err := d.checkMounted(ctx, dir.Path(), path); err != nil {
		return 0, err
	}
	return device.Grow(ctx, dir.Path(), fsTypeOf(src))
}

// checkMounted returns an error unless the device is the one that is mounted at dir: since
// then, the volume's path may have changed. btrfs does not show its device.
func (d *Driver) checkMounted(ctx context.Context, dir, device string) error {
	seen, err := d.c.Kernel.Look(ctx, dir)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat(device, &st); err != nil {
		return &os.PathError{Op: "stat", Path: device, Err: err}
	}
	hidden := seen.Dev>>32 == 0 // the major number of file systems that do not show a device
	if !seen.Mounted || !hidden && seen.Dev != mount.DeviceOf(st.Rdev) {
		return fmt.Errorf("%s is not the device that is mounted for the pod: %w", device, disk.ErrIdentity)
	}
	return nil
}
