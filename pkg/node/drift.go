package node

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const (
	// driftPause is the least time between two looks at the mount table. Our own
	// mounts change it too, and reading 10,000 mounts takes 100 ms: after longer looks
	// the pause is driftRest times as long as the look, up to driftMost.
	driftPause = time.Second
	driftRest  = 10
	driftMost  = 10 * time.Second
	// driftWhole is the least time between two looks that read all of it, also what
	// was mounted elsewhere when it was looked at before.
	driftWhole = time.Minute
)

// runDrift tells the manager what is mounted below the root whenever the
// kernel says that the mount table changed.
func (n *Node) runDrift(ctx context.Context) error {
	changes, err := n.kernel.Watch(ctx)
	if err != nil {
		return fmt.Errorf("watch the mount table: %w", err)
	}
	real, err := filepath.EvalSymlinks(n.cfg.Root)
	if err != nil {
		return fmt.Errorf("resolve the root directory: %w", err)
	}
	tracker, whole := n.kernel.Track(real), time.Now()
	follow(ctx, changes, n.log, func() error {
		if time.Since(whole) >= driftWhole {
			whole = time.Now()
			tracker.Forget()
		}
		entries, err := tracker.List(ctx)
		if err != nil {
			return err
		}
		mounts, fuse := make(map[string]state.Seen, len(entries)), map[string]struct{}{}
		for _, e := range entries { // the topmost of a path comes last
			path := e.Path
			if real != n.cfg.Root { // as it seldom is
				path = n.cfg.Root + strings.TrimPrefix(e.Path, real)
			}
			mounts[path] = state.Seen{
				Exists: true, Mounted: true, MountID: e.ID, Dev: e.Dev, ReadOnly: e.ReadOnly, Layers: mounts[path].Layers + 1,
			}
			if e.FSType == "fuse" || strings.HasPrefix(e.FSType, "fuse.") {
				fuse[path] = struct{}{}
			}
		}
		n.mu.Lock()
		n.fuse = fuse
		n.mu.Unlock()
		n.manager.MountsSeen(mounts)
		return nil
	})
	return nil
}

// follow has tell called at once and after every change until ctx ends, and again
// where that failed; changes while it pauses are one. The first look, which reads
// what all others have mounted, is not to come with the first pods: of 20,000
// mounts it takes 60 ms.
func follow(ctx context.Context, changes <-chan struct{}, log *slog.Logger, tell func() error) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for open := true; open; _, open = <-changes {
		for failed := false; ; failed = true {
			select {
			case <-pause.C:
			case <-ctx.Done():
				return
			}
			began := time.Now()
			err := tell()
			pause.Reset(min(max(driftPause, driftRest*time.Since(began)), driftMost))
			if err == nil {
				break
			}
			if !failed && ctx.Err() == nil {
				log.Warn("mount table cannot be read; what vanishes is not noticed until it can", "err", err)
			}
		}
	}
	if ctx.Err() == nil {
		log.Warn("kernel no longer tells of changes of the mount table; what vanishes is noticed at the next start only")
	}
}
