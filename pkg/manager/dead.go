package manager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// errDead is wrapped by the failure of a call that would have given, or gave, a pod a
// mount whose server has ended.
var errDead = errors.New("the mounted file system is dead")

// checkAlive fails if the volume's mount at path is known to be dead. Some drivers publish such a
// mount, or stage over it, and answer OK.
func (c caller) checkAlive(ctx context.Context, v state.Volume, path string) error {
	if c.cfg.Dead == nil {
		return nil
	}
	if err := c.cfg.Dead(ctx, v, path); err != nil {
		return fmt.Errorf("%w: %s: %w", errDead, path, err)
	}
	return nil
}

// deadMount says whether calls found that a volume's server has ended.
type deadMount struct {
	known bool
	times int       // how often in a row
	until time.Time // when to mount it again at the earliest
}

// noteDead updates v.dead after a call.
func (v *volume) noteDead(s *start, failure *state.CallError) {
	d := &v.dead
	switch {
	case failure != nil && errors.Is(failure, errDead):
		d.known, d.until = true, time.Now().Add(plan.DeadPause(d.times))
		d.times++
	case failure != nil:
	case s.op.Kind == plan.Publish:
		*d = deadMount{}
	case d.known && (s.op.Kind == plan.Stage || s.op.Kind == plan.Unstage || s.op.Kind == plan.Unpublish &&
		!s.begun.Needs.Stage):
		d.known = false
	}
}
