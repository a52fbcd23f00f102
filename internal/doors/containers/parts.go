package containers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/subpath"
	"github.com/csi-volmgr/csi-volmgr/internal/tools/handover/disk"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Parts undoes the parts of volumes that containers got. The manager's calls need it before there is a
// manager. Every field is required.
type Parts struct {
	Layout   state.Layout
	Kernel   *mount.Kernel
	Subpaths *subpath.Binder
	// Keeper removes the kubelet's files of a volume that was taken over.
	Keeper disk.Keeper
}

// BeforeUnpublish removes the subpaths of the pod's containers, and the kubelet's files of a volume that
// was taken over, before the volume is unpublished.
func (p *Parts) BeforeUnpublish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	if err := p.Subpaths.Remove(ctx, pod, subpathNames(v, v.Mounts[pod])...); err != nil {
		return err
	}
	if err := p.Keeper.BeforeUnpublish(ctx, v, pod); err != nil {
		return fmt.Errorf("remove the kubelet's files of the volume: %w", err)
	}
	return nil
}

// subpathNames returns the names under which parts of the volume are mounted: the pod's own, and that of
// the PersistentVolume, which a kubelet uses.
func subpathNames(v state.Volume, m state.Mount) []string {
	if slices.Contains(m.Names, v.Spec.Name) {
		return m.Names
	}
	return append(slices.Clone(m.Names), v.Spec.Name)
}

// UnmountBy unmounts by force or lazily what the manager removes: the pod's mount of the volume and its
// subpaths, which are of the same file system, or, without a pod, the stage.
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
