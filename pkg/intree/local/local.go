// Package local is the built-in kind local: a directory or a block device of
// this node as a PersistentVolume, where the operator allows its path.
//
// A directory is bound to the pod's, a device with a file system is mounted
// there, and of a raw block volume the device's path is handed out. No device
// is ever formatted: what is on it is somebody's data until a person says that
// it is not.
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

	"github.com/csi-volmgr/csi-volmgr/pkg/intree/hostpath"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/ownership"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/poddir"
	"github.com/csi-volmgr/csi-volmgr/pkg/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Kind is the name of this kind.
const Kind state.DriverName = "kubernetes.io/local-volume"

// coveredMode is the mode of the directory that is mounted on: should the mount
// be gone, no container's user writes to the node's disk.
const coveredMode = 0o700

// defaultFSType is the kubelet's.
const defaultFSType = "ext4"

// ErrType means that what is at the path is nothing that the volume can be of.
var ErrType = errors.New("neither a directory nor a block device that fits the volume's mode")

// Config of a Driver. All fields but Allow are required.
type Config struct {
	Layout state.Layout
	Kernel *mount.Kernel
	// Allow is as in hostpath.Config; it is compared with what a path leads to.
	Allow []string
}

// Driver makes local volumes. It may be used by many goroutines.
type Driver struct {
	poddir.PublishOnly
	poddir.Remover
	c       Config
	mounter *mount.Mounter
}

// New returns a Driver.
func New(c Config) *Driver {
	return &Driver{poddir.PublishOnly{Kind: Kind}, poddir.Remover{Layout: c.Layout, Kernel: c.Kernel}, c, mount.NewMounter(c.Kernel)}
}

// Publish mounts the volume at the pod's directory; where it is mounted already
// nothing changes.
func (d *Driver) Publish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	m, dir, err := poddir.Begin(d.c.Layout, v, pod)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var src corev1.LocalVolumeSource
	if err := json.Unmarshal(v.Spec.Config, &src); err != nil {
		return poddir.Refused("Publish", fmt.Errorf("volume %s: local: %w", v.Spec.Name, err))
	}
	if err := d.publish(ctx, v, request{dir, src, m, pod}); err != nil {
		err = fmt.Errorf("volume %s: local path %q: %w", v.Spec.Name, src.Path, err)
		if errors.Is(err, hostpath.ErrDenied) || errors.Is(err, ErrType) {
			return poddir.Refused("Publish", err)
		}
		return err
	}
	return nil
}

// request is one Publish.
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
	f, err := r.dir.Make(coveredMode)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil || v.Spec.Mode == state.Block {
		return err // a device is handed out by its path
	}
	seen, err := d.c.Kernel.Look(ctx, r.dir.Path())
	if err != nil || seen.Mounted {
		return err
	}
	if err := d.mount(v.Spec, r, path, device); err != nil {
		return err
	}
	if err := own(ctx, v, r); err != nil {
		// Not mounted is what a repeated call begins with. Not under ctx: its end
		// may be the reason.
		return errors.Join(err, d.c.Kernel.Unmount(context.WithoutCancel(ctx), r.dir.Path()))
	}
	return nil
}

// find returns the path without symbolic links in it, and the format of what is there.
func (d *Driver) find(path string) (real string, format uint32, err error) {
	if !filepath.IsAbs(path) {
		return "", 0, fmt.Errorf("%w: it is not an absolute path", hostpath.ErrDenied)
	}
	if real, err = filepath.EvalSymlinks(path); err != nil {
		return "", 0, err
	}
	var dirs []string
	for _, dir := range d.c.Allow {
		if to, err := filepath.EvalSymlinks(dir); err == nil {
			dirs = append(dirs, to)
		}
	}
	if hostpath.Allowed(dirs, real) == "" {
		return "", 0, fmt.Errorf("%w: it leads to %s, which is not at or below any of the paths that the node's operator allows %q (--host-path-allow)",
			hostpath.ErrDenied, real, d.c.Allow)
	}
	var st unix.Stat_t
	if err := unix.Lstat(real, &st); err != nil {
		return "", 0, &os.PathError{Op: "stat", Path: real, Err: err}
	}
	return real, st.Mode & unix.S_IFMT, nil
}

// mount mounts what is at path, which the kernel opens without following a link.
func (d *Driver) mount(spec state.Spec, r request, path string, device bool) error {
	flags := slices.Clone(spec.MountFlags)
	if r.m.ReadOnly {
		flags = append(flags, "ro")
	}
	if !device {
		return d.mounter.Mount(path, r.dir.Path(), "", append([]string{"bind"}, flags...))
	}
	fsType := defaultFSType
	if r.src.FSType != nil && *r.src.FSType != "" {
		fsType = *r.src.FSType
	}
	if err := d.c.Kernel.Filesystem(path, r.dir.Path(), fsType, flags); err != nil {
		return fmt.Errorf("%w (a device is never formatted here; if it is empty, make the file system with mkfs.%s)", err, fsType)
	}
	return nil
}

// own gives the volume to the pod's group, where the pod is the only one that
// has it: the kubelet, too, changes nothing under another pod.
func own(ctx context.Context, v state.Volume, r request) error {
	if r.m.FSGroup == nil || r.m.ReadOnly {
		return nil
	}
	for other, m := range v.Mounts {
		if other != r.pod && m.Phase != state.Absent {
			return nil
		}
	}
	f, err := r.dir.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	return ownership.Apply(ctx, f, ownership.Options{GID: *r.m.FSGroup, OnRootMismatch: true})
}
