package watch

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/host/leftover"
	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const (
	// leftoverPause is the least time between two searches for directories of pods that
	// are gone.
	leftoverPause = 10 * time.Second
	// leftoverStart is the same until all sources of pods have synced.
	leftoverStart = 100 * time.Millisecond
	// leftoverIdle is how long a directory must have been unchanged before it is
	// removed.
	leftoverIdle = time.Minute
)

// PodsConfig configures Pods. Every function is required except Counted.
type PodsConfig struct {
	// Root is the directory below which volumes are mounted: absolute and clean.
	Root string
	// Mounts lists what is mounted below a directory (mount.Kernel.List).
	Mounts func(ctx context.Context, dir string) ([]mount.Entry, error)
	// Known returns the pods and paths that have a record.
	Known func() leftover.Known
	// KnowsPod reports whether a pod has a record or is wanted.
	KnowsPod func(uid state.PodUID) bool
	// Changed and Inputs return channels that close at the next change of the pods, and
	// of the input from the sources of pods.
	Changed, Inputs func() <-chan struct{}
	// Synced reports whether every source of pods has delivered its pods.
	Synced func() bool
	// Counted receives how many directories a search removed and how many stay; nil if
	// there are no metrics.
	Counted func(removed, left int)
	Logger  *slog.Logger
}

// Pods removes the directories of pods that are gone. One goroutine runs it.
type Pods struct{ PodsConfig }

// Run removes the empty directories of pods that are gone, after every change of the
// pods, and again later if one was too young. An operator removes those with content
// (csi-volmgr gc). Run returns nil when ctx ends.
func (p Pods) Run(ctx context.Context) error {
	var logged map[string]bool
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		changed, ready := p.Changed(), p.Inputs()
		var again bool
		if logged, again = p.remove(ctx, logged, time.Now().Add(-leftoverIdle)); again {
			pause.Reset(leftoverIdle)
		} else {
			select {
			case <-changed:
			case <-ready:
			case <-ctx.Done():
				return nil
			}
			pause.Reset(leftoverPause)
			if !p.Synced() {
				pause.Reset(leftoverStart)
			}
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// remove removes the directories that may be removed, and logs each one that stays
// unless it is in logged. It returns those that stay, and whether another one is too
// young to be removed: it changed after idle.
func (p Pods) remove(ctx context.Context, logged map[string]bool, idle time.Time) (stay map[string]bool, young bool) {
	stay = map[string]bool{}
	candidates, err := p.countUnknown()
	if err != nil {
		p.Logger.Warn("cannot list the directories of pods that are gone", "err", err)
	}
	removed, left := 0, 0
	if candidates > 0 {
		s := leftover.Scanner{Root: p.Root, Mounts: p.Mounts}
		items, err := s.Pods(ctx, p.Known, idle)
		if err != nil && ctx.Err() == nil {
			p.Logger.Warn("cannot inspect the directories of pods that are gone", "err", err)
		}
		for _, i := range items {
			if i.Removed {
				removed++
				p.Logger.Info("removed the empty directory of a pod that is gone", "path", i.Path)
				continue
			}
			left++
			stay[i.Path] = true
			if !logged[i.Path] {
				p.Logger.Warn("kept the directory of a pod that is gone", "path", i.Path, "reason", i.Why, "err", i.Error)
			}
		}
	}
	if p.Counted != nil {
		p.Counted(removed, left)
	}
	return stay, candidates > removed+left
}

// countUnknown counts the directories of unknown pods. Usually there are none, and then
// the sweep need not read the mount table.
func (p Pods) countUnknown() (count int, err error) {
	entries, err := os.ReadDir(filepath.Join(p.Root, "pods"))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return 0, err
	}
	for _, e := range entries {
		if e.IsDir() && !p.KnowsPod(state.PodUID(e.Name())) {
			count++
		}
	}
	if count > 0 && p.Known().Unsure != "" {
		return 0, nil
	}
	return count, nil
}
