package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/ownership"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/poddir"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// coveredMode is the mode of the directories used as mount points.
const coveredMode = 0o700

// Stager mounts disks for volumes and publishes them to pods. It is safe for concurrent
// use, with one call at a time per volume.
type Stager struct {
	Layout state.Layout
	Kernel *mount.Kernel
	Host   Host
}

// Want says how a disk must be mounted.
type Want struct {
	FSType   string
	Flags    []string
	ReadOnly bool
}

// check refuses a file system type that disks cannot have, and mount options that a
// volume may not have.
func (w Want) check() error { return mount.CheckFilesystem(w.FSType, w.Flags) }

// Options returns the mount options. A disk comes from outside this node, so device
// nodes and set-user-id programs on it have no effect, unless the volume's mountOptions
// contain "dev" or "suid".
func (w Want) Options() []string {
	options := append([]string{"nosuid,nodev"}, w.Flags...)
	if w.ReadOnly {
		options = append(options, "ro")
	}
	return options
}

// Begin makes the directories of a volume's stage. It refuses a record with another
// stage path, which another program must have written.
func (s Stager) Begin(ctx context.Context, v state.Volume) error {
	if err := s.checkStagePath("Stage", v); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := os.MkdirAll(filepath.Dir(v.Spec.StagePath), 0o750); err != nil {
		return err
	}
	if v.Spec.Mode == state.Block {
		d, err := poddir.At(s.Layout, v.Spec.StagePath)
		if err != nil {
			return err
		}
		return d.MakeFile()
	}
	err := os.Mkdir(v.Spec.StagePath, coveredMode)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	return err
}

// checkStagePath refuses a stage path that is not the volume's own.
func (s Stager) checkStagePath(verb string, v state.Volume) error {
	if want := s.Layout.BuiltinStagePath(v.Spec.Driver, v.ID); v.Spec.StagePath != want {
		return poddir.Refused(verb, fmt.Errorf("stage path %q is not the volume's stage path %s", v.Spec.StagePath, want))
	}
	return nil
}

// Mount mounts the disk at the volume's stage path. If the volume was staged before, it
// must be the same disk.
func (s Stager) Mount(ctx context.Context, v state.Volume, d Disk, w Want) error {
	m, before, err := readRecord(v.Spec.StagePath)
	if err != nil {
		return err
	}
	if before && m.WWID != d.WWID {
		return fmt.Errorf("the volume was staged from disk %s, but the disk found now is %s: %w", m.WWID, d.WWID, ErrIdentity)
	}
	seen, err := s.Kernel.Look(ctx, v.Spec.StagePath)
	if err != nil || seen.Mounted {
		return err
	}
	f, err := s.Host.open(d, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	m.WWID = d.WWID
	if err := m.save(); err != nil {
		return err
	}
	if v.Spec.Mode == state.Block {
		// Bind the node itself and not a udev link, which may change. The node belongs
		// to this disk while f is open, and later as long as the disk exists.
		return s.Kernel.Bind(s.Host.Path(d), v.Spec.StagePath, mount.BindOptions{})
	}
	if err := w.check(); err != nil {
		return poddir.Refused("Stage", err)
	}
	if err := dropCache(f); err != nil {
		return err
	}
	unused, err := s.Host.unused(d)
	if err != nil {
		return err
	}
	if m.FileSystem != "" {
		if err := m.recognize(f); err != nil {
			return err
		}
	}
	if unused { // otherwise the disk is mounted already and has a file system in use
		err = s.Host.prepare(ctx, d, f, w, &m)
	} else {
		err = requireFS(f, w.FSType)
	}
	if err != nil {
		return err
	}
	if err := m.recognize(f); err != nil {
		return err
	}
	err = s.mount(ctx, d, v.Spec.StagePath, w)
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("%w (%w)", err, errMoving)
	}
	return err
}

// unused reports whether nothing uses the disk exclusively: no mount in any namespace,
// and no device on top of it.
func (h Host) unused(d Disk) (bool, error) {
	f, err := h.open(d, os.O_RDONLY|unix.O_EXCL)
	if errors.Is(err, unix.EBUSY) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, f.Close()
}

// Publish bind-mounts the staged volume at the pod's directory.
func (s Stager) Publish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	m, dir, err := poddir.Begin(ctx, s.Layout, v, pod)
	if err != nil {
		return err
	}
	staged, err := s.Kernel.Look(ctx, v.Spec.StagePath)
	if err != nil {
		return err
	}
	if !staged.Mounted {
		return fmt.Errorf("volume %s: nothing is mounted at %s", v.Spec.Name, v.Spec.StagePath)
	}
	if v.Spec.Mode == state.Block {
		return PublishNode(ctx, s.Kernel, dir, v.Spec.StagePath)
	}
	if _, err := dir.MakeNew(coveredMode); err != nil {
		return err
	}
	seen, err := s.Kernel.Look(ctx, dir.Path())
	if err != nil || seen.Mounted {
		return err
	}
	o := mount.BindOptions{ReadOnly: m.ReadOnly, Peer: m.Context[kind.PropagationKey] == kind.Bidirectional}
	if err := s.Kernel.Bind(v.Spec.StagePath, dir.Path(), o); err != nil {
		return err
	}
	if err := GiveToGroup(ctx, v, pod, dir, false); err != nil {
		// A repeated call expects that nothing is mounted. The unmount ignores the end
		// of ctx, which may be the cause of err.
		return errors.Join(err, s.Kernel.Unmount(context.WithoutCancel(ctx), dir.Path()))
	}
	return nil
}

// PublishNode binds a device node to the pod's path of the volume, unless something is
// bound there already.
func PublishNode(ctx context.Context, k *mount.Kernel, dir poddir.Dir, node string) error {
	seen, err := k.Look(ctx, dir.Path())
	if err != nil || seen.Mounted {
		return err
	}
	if err := dir.MakeFile(); err != nil {
		return err
	}
	return k.Bind(node, dir.Path(), mount.BindOptions{})
}

// GiveToGroup gives the volume to the pod's fsGroup if no other pod uses it. Like the
// kubelet, it changes nothing while another pod does. shared means that the volume shares its
// file system with files of others, so that files with several names are left alone. All names
// of a file of a whole disk are in its volume.
func GiveToGroup(ctx context.Context, v state.Volume, pod state.PodUID, dir poddir.Dir, shared bool) error {
	m := v.Mounts[pod]
	if m.FSGroup == nil || m.ReadOnly {
		return nil
	}
	for other, o := range v.Mounts {
		if other != pod && o.Phase != state.Absent {
			return nil
		}
	}
	f, err := dir.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	return ownership.Apply(ctx, f, ownership.Options{GID: *m.FSGroup, OnRootMismatch: true, SkipLinked: shared})
}

// Unpublish unmounts the volume from the pod and removes its directory.
func (s Stager) Unpublish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	return poddir.Remover{Layout: s.Layout, Kernel: s.Kernel}.Unpublish(ctx, v, pod)
}

// Unmount unmounts the volume's stage. It returns the WWID of the disk that was
// mounted, or "" if there is no record of it. It fails if ctx ended meanwhile: others may
// have begun to use the disk, and nothing of it may be removed.
func (s Stager) Unmount(ctx context.Context, v state.Volume) (wwid string, err error) {
	if err := s.checkStagePath("Unstage", v); err != nil {
		return "", err
	}
	if err := s.Kernel.Unmount(ctx, v.Spec.StagePath); err != nil {
		return "", err
	}
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	m, _, err := readRecord(v.Spec.StagePath)
	return m.WWID, err
}

// End removes the volume's stage directory with the record of its disk. It is the last
// step of Unstage.
func (s Stager) End(v state.Volume) error {
	file := recordPath(v.Spec.StagePath)
	for _, path := range []string{v.Spec.StagePath, file + ".new", file, filepath.Dir(v.Spec.StagePath)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Grow grows the volume's file system to the current size of its disk and returns that
// size in bytes. The named devices must lead to the disk that was staged.
func (s Stager) Grow(ctx context.Context, v state.Volume, names []string, fsType string) (int64, error) {
	found, err := s.Host.Found(names)
	if err != nil {
		return 0, fmt.Errorf("volume %s: %w", v.Spec.Name, err)
	}
	m, _, err := readRecord(v.Spec.StagePath)
	if err != nil {
		return 0, err
	}
	if m.WWID != found.WWID {
		return 0, fmt.Errorf("volume %s: staged from disk %q, but the disk found now is %s: %w", v.Spec.Name, m.WWID,
			found.WWID, ErrIdentity)
	}
	if v.Spec.Mode == state.Block {
		fsType = noFS
	}
	size, err := s.Host.Grow(ctx, found, v.Spec.StagePath, fsType)
	if err != nil {
		return 0, fmt.Errorf("volume %s: grow: %w", v.Spec.Name, err)
	}
	return size, nil
}
