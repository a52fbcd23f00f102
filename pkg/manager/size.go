package manager

import (
	"context"
	"fmt"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// expand makes the call and checks its effect: after an expansion the device and the file
// system must be larger than before (rule 6).
func (c caller) expand(ctx context.Context, v state.Volume, op plan.Op) (int64, error) {
	if c.cfg.BeforeExpand != nil {
		c.cfg.BeforeExpand(ctx, v)
	}
	path := v.Mounts[op.Pod].Target
	before := c.size(ctx, path)
	bytes, err := c.driver.Expand(ctx, v, op.Pod, op.SizeBytes)
	if err != nil || before == (state.Sizes{}) {
		return bytes, err
	}
	if why := notGrown(before, c.size(ctx, path), v.SizeBytes, op.SizeBytes); why != "" {
		return bytes, fmt.Errorf("%w: %s, %d were requested", ErrNoEffect, why, op.SizeBytes)
	}
	return bytes, nil
}

// size asks the kernel for sizes; zero if it cannot tell.
func (c caller) size(ctx context.Context, path string) state.Sizes {
	ctx, cancel := context.WithTimeoutCause(ctx, lookDeadline, fmt.Errorf("no answer from the storage within %v",
		lookDeadline))
	defer cancel()
	s, err := c.cfg.Kernel.Size(ctx, path)
	if err != nil {
		return state.Sizes{}
	}
	return s
}

// notGrown says what shows that an expansion from have to want bytes, which was answered OK,
// had no effect; "" if nothing does. A volume that was expanded by an earlier call, whose
// answer was lost, does not grow again, but then it is larger than have. File systems and
// encryption need part of a device for themselves, so a growth by less than a third is not
// checked.
func notGrown(before, after state.Sizes, have, want int64) string {
	same := func(before, after int64) bool {
		return after != 0 && after <= before && after < want && after <= have && want-have > want/4
	}
	switch {
	case same(before.Device, after.Device):
		return fmt.Sprintf("its device has %d bytes, as before", after.Device)
	case same(before.FileSystem, after.FileSystem):
		return fmt.Sprintf("its file system has %d bytes, as before", after.FileSystem)
	default:
		return ""
	}
}
