package manager

import (
	"context"
	"fmt"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Sizer is a Kernel that can also tell how large what is at a path is. The end of
// ctx ends the question.
type Sizer interface {
	Size(ctx context.Context, path string) (state.Sizes, error)
}

// expand makes the call, and looks before and after it whether it is true: an
// expansion is done when the device and the file system are larger (rule 6).
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
		return bytes, fmt.Errorf("%w: %s, asked for were %d", ErrNoEffect, why, op.SizeBytes)
	}
	return bytes, nil
}

// size asks the kernel, where it can tell; a question that fails says nothing.
func (c caller) size(ctx context.Context, path string) state.Sizes {
	k, ok := c.cfg.Kernel.(Sizer)
	if !ok {
		return state.Sizes{}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, lookDeadline, fmt.Errorf("no answer from the storage within %v",
		lookDeadline))
	defer cancel()
	s, err := k.Size(ctx, path)
	if err != nil {
		return state.Sizes{}
	}
	return s
}

// notGrown says what shows that an expansion from have to want bytes, which was
// answered OK, had no effect; "" where nothing does. What was grown by an earlier
// call, whose answer was lost, does not grow again: then it is larger than have.
// File systems and encryption take some of a device for themselves, so of a
// growth by less than a third nothing is said.
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
