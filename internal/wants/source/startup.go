package source

import (
	"context"
	"time"
)

// TidyPause is the time between the end of the start and the start of cleanup: clients that waited for
// the start make their requests now, and these use the same CPUs.
const TidyPause = 200 * time.Millisecond

// Loop is the part of the manager whose start [Startup] waits for.
type Loop interface {
	Changed() <-chan struct{}
	ReconcilerStatesHasBeenSynced() bool
}

// Startup ends when all sources have spoken and the manager shows what they said, compared with the
// kernel, or when Grace is over. It is safe for concurrent use.
type Startup struct {
	loop Loop
	over chan struct{} // closed at the end of the start
}

// NewStartup returns a start that has not ended.
func NewStartup(loop Loop) Startup { return Startup{loop: loop, over: make(chan struct{})} }

// Started returns a channel that is closed when all sources have spoken and the manager shows what they
// said, compared with the kernel, or when Grace is over. Without Run it is never closed.
func (s Startup) Started() <-chan struct{} { return s.over }

// UntilStarted waits for the end of the start and closes the channel of Started. It is called once.
func (s Startup) UntilStarted(ctx context.Context) error {
	grace, cancel := context.WithTimeout(ctx, Grace)
	defer cancel()
	for grace.Err() == nil {
		changed := s.loop.Changed()
		if s.loop.ReconcilerStatesHasBeenSynced() {
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

// AfterStart returns a function that runs part once the start and TidyPause are over, so that cleanup takes no
// time from what pods wait for (with 1,000 mounted volumes, a seventh of the CPU of a start).
func (s Startup) AfterStart(part func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-s.over:
		case <-ctx.Done():
			return nil
		}
		pause := time.NewTimer(TidyPause)
		defer pause.Stop()
		select {
		case <-pause.C:
			return part(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}
