package node

import (
	"context"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/source"
)

// tidyPause is how long after all is known what only tidies up is begun: who
// waited for the node to know asks now, and is answered by the same processors.
const tidyPause = 200 * time.Millisecond

// startup knows when all sources have spoken and the manager shows what they said,
// compared with the kernel, or source.Grace is over.
type startup struct {
	manager *manager.Manager
	over    chan struct{} // closed then
}

// Started returns a channel that is closed when all sources have spoken and the manager
// shows what they said, compared with the kernel, or source.Grace is over. It never is
// where Run is not called.
func (s startup) Started() <-chan struct{} { return s.over }

// run closes what Started returns.
func (s startup) run(ctx context.Context) error {
	grace, cancel := context.WithTimeout(ctx, source.Grace)
	defer cancel()
	for grace.Err() == nil {
		changed := s.manager.Changed()
		if s.manager.ReconcilerStatesHasBeenSynced() {
			break
		}
		select {
		case <-changed:
		case <-grace.Done():
		}
	}
	if ctx.Err() == nil {
		close(s.over)
	}
	return nil
}

// after returns part, begun when the start and tidyPause are over: what only tidies up
// takes no time from what pods wait for (with 1,000 mounted volumes a seventh of the CPU
// of a start).
func (s startup) after(part func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-s.over:
		case <-ctx.Done():
			return nil
		}
		pause := time.NewTimer(tidyPause)
		defer pause.Stop()
		select {
		case <-pause.C:
			return part(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}
