// Package emptydir is the built-in kind emptyDir: a directory that lives as long as its
// pod, on the node's disk, in memory, or in huge pages.
//
// Invariant: only Unpublish removes data. Publishing again, after a restart or a lost
// answer, does not change what the pod wrote.
package emptydir

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/ownership"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/poddir"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/quota"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Kind is the name of this kind.
const Kind = kind.EmptyDir

const (
	// defaultMode is the directory's mode; containers may run as any user.
	defaultMode = 0o777
	// memoryMode is that of a medium Memory: the kernel's for a tmpfs, which the kubelet leaves.
	memoryMode = 0o777 | os.ModeSticky
	// maxMode is the largest mode that a pod may ask for (emptyDir.mode).
	maxMode = 0o1777
	// coveredMode is the mode of a mount point: if the mount is missing, no container's
	// user can write to the node's disk.
	coveredMode = 0o700
	// scratchMode is the mode of the directory that holds the mark.
	scratchMode = 0o750
	// mark is the file that records that the volume was handed over to its pod. After
	// that, this package no longer changes its owner or mode. The kubelet's file has
	// the same name.
	mark = "ready"
)

// Config configures a Driver. Layout and Kernel are required.
type Config struct {
	Layout state.Layout
	Kernel *mount.Kernel
	// Quotas enforce the size limits of volumes on the node's disk; nil means no
	// enforcement.
	Quotas *quota.Projects
	// Logger may be nil: then slog.Default is used.
	Logger *slog.Logger
}

// Driver implements emptyDir volumes. It is safe for concurrent use.
type Driver struct {
	poddir.PublishOnly
	c Config
}

// New returns a Driver.
func New(c Config) *Driver {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return &Driver{poddir.PublishOnly{Kind: Kind}, c}
}

// Publish makes the volume's directory. A volume of medium Memory or HugePages that a
// reboot removed becomes a new, empty one.
func (d *Driver) Publish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	m, dir, err := poddir.Begin(ctx, d.c.Layout, v, pod)
	if err != nil {
		return err
	}
	scratch, err := poddir.Scratch(d.c.Layout, v, pod)
	if err != nil {
		return poddir.Refused("Publish", err)
	}
	medium, err := parseMedium(v)
	if err != nil {
		return poddir.Refused("Publish", err)
	}
	fresh, err := d.place(ctx, dir, medium)
	if err != nil {
		return err
	}
	if !fresh && isMarked(scratch) {
		return nil
	}
	if err := d.setLimit(dir, scratch, medium); err != nil {
		// Usage still measures the volume, and the agent that runs the pod evicts it.
		d.c.Logger.Warn("the limit of an emptyDir is not enforced", "volume", v.Spec.Name, "pod", string(pod), "err", err)
	}
	if !fresh || m.FSGroup != nil || medium.mode != medium.firstMode() {
		if err := setModeAndGroup(ctx, dir, medium.mode, m.FSGroup); err != nil {
			return err
		}
	}
	return handOver(scratch)
}

// place makes the directory and mounts on it what the medium needs. It reports whether
// it made either.
func (d *Driver) place(ctx context.Context, dir poddir.Dir, m medium) (fresh bool, err error) {
	fresh, err = dir.MakeNew(m.dirMode())
	if err != nil {
		return false, err
	}
	if fresh { // nothing can be mounted there
		return true, d.fill(dir, m)
	}
	seen, err := d.c.Kernel.Look(ctx, dir.Path())
	if err != nil {
		return false, err
	}
	if seen.Mounted {
		return false, d.checkMounted(ctx, dir, m)
	}
	return m.fsType != "", d.fill(dir, m)
}

// fill mounts on the directory what the medium needs.
func (d *Driver) fill(dir poddir.Dir, m medium) error {
	if m.fsType == "" {
		return nil
	}
	return d.c.Kernel.Tmpfs(dir.Path(), mount.TmpfsOptions{
		SizeBytes: m.sizeBytes, Mode: m.firstMode(), NoSwap: true, HugePageSize: m.pageSize,
	})
}

// Expand grows a volume of medium Memory to bytes; its content stays. It fails for
// other media. The limit of a volume on the node's disk does not change.
func (d *Driver) Expand(ctx context.Context, v state.Volume, pod state.PodUID, bytes int64) (int64, error) {
	dir, err := poddir.Of(d.c.Layout, v, pod)
	if err != nil {
		return 0, poddir.Refused("Expand", err)
	}
	medium, err := parseMedium(v)
	switch {
	case err != nil:
		return 0, poddir.Refused("Expand", err)
	case medium.fsType != "tmpfs":
		return d.PublishOnly.Expand(ctx, v, pod, bytes)
	}
	if err := d.checkMounted(ctx, dir, medium); err != nil {
		return 0, err
	}
	return bytes, d.c.Kernel.Reconfigure(dir.Path(), []string{fmt.Sprintf("size=%d", bytes)})
}

// setModeAndGroup sets the directory's mode and group. Bits that the group needs are added to the
// mode.
func setModeAndGroup(ctx context.Context, dir poddir.Dir, mode os.FileMode, fsGroup *int64) error {
	f, err := dir.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	// Keep setgid, which shows that the group was already set.
	if err := f.Chmod(mode | st.Mode()&os.ModeSetgid); err != nil {
		return err
	}
	if fsGroup == nil {
		return nil
	}
	// SkipLinked, because the node's disk also holds files of others.
	return ownership.Apply(ctx, f, ownership.Options{GID: *fsGroup, OnRootMismatch: true, SkipLinked: true})
}

// handOver writes the mark.
func handOver(scratch poddir.Dir) error {
	s, err := scratch.Make(scratchMode)
	if err != nil {
		return err
	}
	defer s.Close()
	return writeMark(s)
}

// Unpublish removes the directory with everything that the pod wrote.
func (d *Driver) Unpublish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	dir, err := poddir.Of(d.c.Layout, v, pod)
	if err != nil {
		return poddir.Refused("Unpublish", err)
	}
	scratch, err := poddir.Scratch(d.c.Layout, v, pod)
	if err != nil {
		return poddir.Refused("Unpublish", err)
	}
	// The mark goes last: without it, remaining data would look like a volume that was
	// never handed over.
	if err := dir.Remove(ctx, d.c.Kernel); err != nil {
		return err
	}
	if err := d.releaseLimit(scratch); err != nil {
		return err
	}
	return scratch.Remove(ctx, d.c.Kernel)
}

func decode(spec state.Spec) (corev1.EmptyDirVolumeSource, error) {
	var src corev1.EmptyDirVolumeSource
	if len(spec.Config) == 0 {
		return src, nil
	}
	if err := json.Unmarshal(spec.Config, &src); err != nil {
		return src, fmt.Errorf("volume %s: emptyDir: %w", spec.Name, err)
	}
	return src, nil
}
