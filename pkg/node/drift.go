package node

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// driftPause is the least time between two looks at the mount table. Our own
// mounts change it too, and reading 5,000 mounts takes 50 ms.
const driftPause = time.Second

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
	pause := time.NewTimer(0)
	defer pause.Stop()
	for range changes {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return nil
		}
		entries, err := n.kernel.List(ctx, real)
		pause.Reset(driftPause)
		if err != nil {
			if ctx.Err() == nil {
				n.log.Warn("mount table cannot be read; what vanishes is not noticed", "err", err)
			}
			continue
		}
		mounted := make(map[string]bool, len(entries))
		for _, e := range entries {
			mounted[n.cfg.Root+strings.TrimPrefix(e.Path, real)] = true
		}
		n.manager.MountsChanged(mounted)
	}
	if ctx.Err() == nil {
		n.log.Warn("kernel no longer tells of changes of the mount table; what vanishes is noticed at the next start only")
	}
	return nil
}
