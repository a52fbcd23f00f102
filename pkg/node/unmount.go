package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// unmountBy unmounts by a step what is below a removal of the manager: the pod's
// mount of the volume with its subpaths, which are the same file system's, or,
// without a pod, where it is staged.
func (n *Node) unmountBy(ctx context.Context, v state.Volume, pod state.PodUID, step state.UnmountStep) error {
	unmount := n.kernel.Detach
	if step == state.UnmountForce {
		unmount = n.kernel.Force
	}
	if pod == "" {
		return unmount(ctx, v.Spec.StagePath)
	}
	m := v.Mounts[pod]
	paths, errs := []string{}, []error{}
	for _, name := range subpathNames(v, m) {
		below, err := n.subpaths.Mounts(ctx, pod, name)
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
