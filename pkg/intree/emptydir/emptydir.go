// Package emptydir is the built-in kind emptyDir: a directory that lives as long
// as its pod, on the node's disk, in memory, or in huge pages.
//
// Invariant: data is removed by Unpublish and by nothing else. Publishing again,
// after a restart or a lost answer, changes nothing of what the pod made.
package emptydir

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/intree/ownership"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/poddir"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/quota"
	"github.com/csi-volmgr/csi-volmgr/pkg/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Kind is the name of this kind.
const Kind = kind.EmptyDir

const (
	// defaultMode of the directory, as pods know it: containers run as any user.
	defaultMode = 0o777
	// maxMode is the greatest that a pod may ask for (emptyDir.mode).
	maxMode = 0o1777
	// coveredMode is the mode of a directory that only a mount makes a volume:
	// should that be gone, no container's user writes to the node's disk.
	coveredMode = 0o700
	// scratchMode is for the directory of the mark.
	scratchMode = 0o750
	// mark is the file that says that the volume was handed over to its pod, so
	// that its ownership is no longer ours to set. The kubelet's has the same name.
	mark = "ready"
)

// Config of a Driver. Layout and Kernel are required.
type Config struct {
	Layout state.Layout
	Kernel *mount.Kernel
	// Quotas hold volumes on the node's disk to their limits; nil is none.
	Quotas *quota.Projects
	// Logger nil means slog.Default.
	Logger *slog.Logger
}

// Driver makes emptyDir volumes. It may be used by many goroutines.
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

// Publish makes the directory. A volume of medium Memory or HugePages that was
// lost with a reboot is made anew, empty.
func (d *Driver) Publish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	m, dir, err := poddir.Begin(d.c.Layout, v, pod)
	if err != nil {
		return err
	}
	scratch, err := poddir.Scratch(d.c.Layout, v, pod)
	if err != nil {
		return poddir.Refused("Publish", err)
	}
	medium, err := parseMedium(*v.Spec)
	if err != nil {
		return poddir.Refused("Publish", err)
	}
	if medium.fsType == "tmpfs" {
		medium.sizeBytes = max(medium.sizeBytes, v.SizeBytes) // what it has grown to
	}
	fresh, err := d.place(ctx, dir, medium)
	if err != nil {
		return err
	}
	if !fresh && marked(scratch) {
		return nil
	}
	if err := d.limit(dir, scratch, medium); err != nil {
		// What is not enforced is still measured, and the agent that runs the pod evicts it.
		d.c.Logger.Warn("the limit of an emptyDir is not enforced", "volume", v.Spec.Name, "pod", string(pod), "err", err)
	}
	if !fresh || m.FSGroup != nil || medium.mode != defaultMode { // what is fresh has the default
		if err := own(ctx, dir, medium.mode, m.FSGroup); err != nil {
			return err
		}
	}
	return handOver(scratch)
}

// place makes the directory, with what the medium needs mounted on it, and
// reports whether it made any of it.
func (d *Driver) place(ctx context.Context, dir poddir.Dir, m medium) (fresh bool, err error) {
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	fresh, err = dir.MakeNew(m.dirMode())
	if err != nil {
		return false, err
	}
	if fresh { // with nothing mounted there
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

// fill mounts at the directory what the medium needs.
func (d *Driver) fill(dir poddir.Dir, m medium) error {
	if m.fsType == "" {
		return nil
	}
	return d.c.Kernel.Tmpfs(dir.Path(), mount.TmpfsOptions{
		SizeBytes: m.sizeBytes, Mode: m.firstMode(), NoSwap: true, HugePageSize: m.pageSize,
	})
}

// Expand makes a volume of medium Memory as large as bytes; it keeps what it holds. The
// node's disk has the room that it has, and a limit there does not change.
func (d *Driver) Expand(ctx context.Context, v state.Volume, pod state.PodUID, bytes int64) (int64, error) {
	dir, err := poddir.Of(d.c.Layout, v, pod)
	if err != nil {
		return 0, poddir.Refused("Expand", err)
	}
	medium, err := parseMedium(*v.Spec)
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

// own gives the directory its mode and group. The bits that the group needs win.
func own(ctx context.Context, dir poddir.Dir, mode os.FileMode, fsGroup *int64) error {
	f, err := dir.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	// Keeping setgid, which tells that the group was set already.
	if err := f.Chmod(mode | st.Mode()&os.ModeSetgid); err != nil {
		return err
	}
	if fsGroup == nil {
		return nil
	}
	// On the node's disk the directory is among files of others.
	return ownership.Apply(ctx, f, ownership.Options{GID: *fsGroup, OnRootMismatch: true, SkipLinked: true})
}

// handOver leaves the mark.
func handOver(scratch poddir.Dir) error {
	s, err := scratch.Make(scratchMode)
	if err != nil {
		return err
	}
	defer s.Close()
	return leaveMark(s)
}

// Unpublish removes the directory and all that the pod put there.
func (d *Driver) Unpublish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	dir, err := poddir.Of(d.c.Layout, v, pod)
	if err != nil {
		return poddir.Refused("Unpublish", err)
	}
	scratch, err := poddir.Scratch(d.c.Layout, v, pod)
	if err != nil {
		return poddir.Refused("Unpublish", err)
	}
	// The mark goes last: without it, what is left of the data would be taken for
	// a volume that was never handed over.
	if err := dir.Remove(ctx, d.c.Kernel); err != nil {
		return err
	}
	if err := d.unlimit(scratch); err != nil {
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
