package wire

import (
	"context"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
)

// tidyPause is the time between the end of the start and the start of cleanup: clients that waited for
// the start make their requests now, and these use the same CPUs.
const tidyPause = 200 * time.Millisecond

// startup ends when all sources have spoken and the manager shows what they said, compared with the
// kernel, or when source.Grace is over.
type startup struct {
	manager *manager.Manager
	over    chan struct{} // closed at the end of the start
}

// Started returns a channel that is closed when all sources have spoken and the manager shows what they
// said, compared with the kernel, or when source.Grace is over. Without Run it is never closed.
func (s startup) Started() <-chan struct{} { return s.over }

// run waits for the end of the start and closes over.
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

// after returns a function that runs part once the start and tidyPause are over, so that cleanup takes no
// time from what pods wait for (with 1,000 mounted volumes, a seventh of the CPU of a start).
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
