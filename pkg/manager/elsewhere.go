package manager

import (
	"errors"
	"fmt"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// ErrElsewhere is wrapped by the failure of an Unstage that was not made, since
// a user has mounted what is staged at a place of their own: it would go from
// there in the middle of its use, or the device would be let go while it is
// mounted. Unmounting it there by hand cures that.
var ErrElsewhere = errors.New("what is staged is mounted elsewhere too")

// stageAlone looks before an Unstage for mounts of the volume that nobody of this
// node's makes. What cannot be looked at is not unstaged yet.
func (c caller) stageAlone(ctx *limited, v state.Volume, op plan.Op) error {
	f, finds := c.cfg.Kernel.(Finder)
	if op.Kind != plan.Unstage || !v.Staged.Mounted || !finds {
		return nil
	}
	ctx.within(lookDeadline, errNoLook)
	defer ctx.within(ctx.limit, nil)
	switch places, err := f.Elsewhere(ctx, v.Spec.StagePath); {
	case err != nil:
		return fmt.Errorf("before the call: %w", err)
	case len(places) > 0:
		return fmt.Errorf("%w, and is not unstaged before it is unmounted there: %s", ErrElsewhere,
			strings.Join(places, ", "))
	}
	return nil
}
