package watch

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Loop is the manager's loop, which compares the reports with the mounts that it made.
type Loop interface {
	// MountsSeen receives every mount below the root; of several at one path, the
	// topmost.
	MountsSeen(mounts map[string]state.Seen)
	// MountFaults receives the file systems below the root that have errors, by mount
	// path.
	MountFaults(faults map[string]plan.Fault)
}

// MountsConfig configures Mounts. Only tests set Every.
type MountsConfig struct {
	// Root is the directory below which volumes are mounted: absolute and clean.
	Root   string
	Kernel *mount.Kernel
	Logger *slog.Logger
	// Every is how often the kernel is asked for file systems with errors; 0 means 40
	// seconds.
	Every time.Duration
}

// Mounts watches what is mounted below the root. It is safe for concurrent use.
type Mounts struct {
	MountsConfig

	mu   sync.Mutex
	fuse map[string]struct{} // guarded by mu; replaced as a whole
}

// NewMounts returns a watcher that has not seen any mounts yet.
func NewMounts(c MountsConfig) *Mounts { return &Mounts{MountsConfig: c} }

const (
	// driftPause is the least time between two reads of the mount table. Our own mounts
	// change the table too, and reading 10,000 mounts takes 100 ms. After a longer
	// read, the pause is driftRest times as long as the read, up to driftMost.
	driftPause = time.Second
	driftRest  = 10
	driftMost  = 10 * time.Second
	// driftWhole is the least time between two reads of the whole table, including
	// mounts that an earlier read found outside the root.
	driftWhole = time.Minute
)

// Run reports to the loop what is mounted below the root whenever the kernel signals a
// change of the mount table, until ctx ends. It fails if the kernel cannot be watched.
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
		for _, e := range entries { // of several at one path, the topmost comes last
			path := e.Path
			if real != w.Root { // rare
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

// follow calls look at once and after every change until ctx ends, and again if look
// failed. Changes during a pause count as one. The first look comes at the start and
// not with the first pods, since it reads all existing mounts: for 20,000 of them it
// takes 60 ms.
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
				log.Warn("cannot read the mount table; lost mounts are not noticed until that works again", "err", err)
			}
		}
	}
	if ctx.Err() == nil {
		log.Warn("kernel no longer reports changes of the mount table; lost mounts are noticed only after a restart")
	}
}
