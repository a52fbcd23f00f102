package manager

import (
	"errors"
	"fmt"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// ErrElsewhere is wrapped by the failure of an Unstage that was not made, because a user
// has also mounted the staged volume somewhere else: that mount would vanish while it is in
// use, or the device would be released while it is mounted. The user has to unmount it.
var ErrElsewhere = errors.New("the staged volume is also mounted elsewhere")

// checkElsewhere looks before an Unstage for mounts of the volume outside the node's root, which
// neither csi-volmgr nor the driver makes. If it cannot look, Unstage is not called.
func (c caller) checkElsewhere(ctx *callContext, v state.Volume, op plan.Op) error {
	if op.Kind != plan.Unstage || !v.Staged.Mounted {
		return nil
	}
	ctx.setDeadline(lookDeadline, errNoLook)
	defer ctx.setDeadline(ctx.limit, nil)
	switch places, err := c.cfg.Kernel.Elsewhere(ctx, v.Spec.StagePath); {
	case err != nil:
		return fmt.Errorf("before the call: %w", err)
	case len(places) > 0:
		return fmt.Errorf("%w: unmount it there first: %s", ErrElsewhere, strings.Join(places, ", "))
	}
	return nil
}
