package watch

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Loop is the manager's loop, which compares what it hears with what it made.
type Loop interface {
	// MountsSeen takes every mount below the root, the topmost at its path.
	MountsSeen(mounts map[string]state.Seen)
	// MountFaults takes the file systems below the root with errors, by mount path.
	MountFaults(faults map[string]plan.Fault)
}

// MountsConfig says which mounts are watched. Every is for tests alone.
type MountsConfig struct {
	// Root is the directory below which volumes are mounted: absolute and clean.
	Root   string
	Kernel *mount.Kernel
	Logger *slog.Logger
	// Every is how often the kernel is asked for file systems with errors; 0 means
	// 40 seconds.
	Every time.Duration
}

// Mounts watches what is mounted below the root. Any goroutine may call its methods.
type Mounts struct {
	MountsConfig

	mu   sync.Mutex
	fuse map[string]struct{} // guarded by mu; replaced as a whole
}

// NewMounts returns a watcher that has seen no mount yet.
func NewMounts(c MountsConfig) *Mounts { return &Mounts{MountsConfig: c} }

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

// Run reports to the loop what is mounted below the root, whenever the kernel says that
// the mount table changed, until ctx ends. It fails where the kernel cannot be watched.
func (w *Mounts) Run(ctx context.Context, loop Loop) error {
	changes, err := w.Kernel.Watch(ctx)
	if err != nil {
		return fmt.Errorf("watch the mount table: %w", err)
	}
	real, err := filepath.EvalSymlinks(w.Root)
	if err != nil {
		return fmt.Errorf("resolve the root directory: %w", err)
	}
	tracker, whole := w.Kernel.Track(real), time.Now()
	follow(ctx, changes, w.Logger, func() error {
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
			if real != w.Root { // as it seldom is
				path = w.Root + strings.TrimPrefix(e.Path, real)
			}
			mounts[path] = state.Seen{
				Exists: true, Mounted: true, MountID: e.ID, Dev: e.Dev, ReadOnly: e.ReadOnly, Layers: mounts[path].Layers + 1,
			}
			if e.FSType == "fuse" || strings.HasPrefix(e.FSType, "fuse.") {
				fuse[path] = struct{}{}
			}
		}
		w.setFUSE(fuse)
		loop.MountsSeen(mounts)
		return nil
	})
	return nil
}

// follow calls look at once and after every change until ctx ends, and again
// where that failed; changes while it pauses are one. The first look, which reads
// what all others have mounted, is not to come with the first pods: of 20,000
// mounts it takes 60 ms.
func follow(ctx context.Context, changes <-chan struct{}, log *slog.Logger, look func() error) {
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
			err := look()
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
