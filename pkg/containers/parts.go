package containers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/handover/disk"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/subpath"
	"github.com/csi-volmgr/csi-volmgr/pkg/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Parts are the parts of volumes that containers were given. It takes them back; the
// manager's calls need it before there is a manager. Every field is required.
type Parts struct {
	Layout   state.Layout
	Kernel   *mount.Kernel
	Subpaths *subpath.Binder
	// Keeper removes what a kubelet kept of a volume that was taken over.
	Keeper disk.Keeper
}

// BeforeUnpublish removes what containers of the pod were given of a volume, and what a
// kubelet kept of a volume that was taken over, before the volume itself goes.
func (p *Parts) BeforeUnpublish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	if err := p.Subpaths.Remove(ctx, pod, subpathNames(v, v.Mounts[pod])...); err != nil {
		return err
	}
	if err := p.Keeper.BeforeUnpublish(ctx, v, pod); err != nil {
		return fmt.Errorf("remove what a kubelet kept of the volume: %w", err)
	}
	return nil
}

// subpathNames are the names by which parts of the volume are mounted: the pod's
// own, and that of the PersistentVolume, which a kubelet takes.
func subpathNames(v state.Volume, m state.Mount) []string {
	if slices.Contains(m.Names, v.Spec.Name) {
		return m.Names
	}
	return append(slices.Clone(m.Names), v.Spec.Name)
}

// UnmountBy unmounts by a step what is below a removal of the manager: the pod's
// mount of the volume with its subpaths, which are the same file system's, or,
// without a pod, where it is staged.
func (p *Parts) UnmountBy(ctx context.Context, v state.Volume, pod state.PodUID, step state.UnmountStep) error {
	unmount := p.Kernel.Detach
	if step == state.UnmountForce {
		unmount = p.Kernel.Force
	}
	if pod == "" {
		return unmount(ctx, v.Spec.StagePath)
	}
	m := v.Mounts[pod]
	paths, errs := []string{}, []error{}
	for _, name := range subpathNames(v, m) {
		below, err := p.Subpaths.Mounts(ctx, pod, name)
		if err != nil {
			errs = append(errs, fmt.Errorf("find the subpaths of volume %s: %w", name, err))
		}
		paths = append(paths, below...)
	}
	for _, path := range append(paths, m.Target) {
		if err := unmount(ctx, path); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
