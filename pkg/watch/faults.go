package watch

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
)

// faultsEvery is how often the watcher looks for file systems that the kernel has made
// read-only, which raises no event: reading 1,000 mounts takes 10 ms. It adds up to
// half as much again by chance, so that nodes do not look in step.
const faultsEvery = 40 * time.Second

// RunFaults reports to the loop the file systems that take no writes any more, until ctx ends.
func (w *Mounts) RunFaults(ctx context.Context, loop Loop) error {
	real, err := filepath.EvalSymlinks(w.Root)
	if err != nil {
		return fmt.Errorf("resolve the root directory: %w", err)
	}
	every := cmp.Or(w.Every, faultsEvery)
	for logged, ill := false, false; ; {
		pause := time.NewTimer(every + rand.N(every/2))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil
		}
		var err error
		if ill, err = w.reportFaults(ctx, loop, real, ill); err != nil && !logged && ctx.Err() == nil {
			logged = true
			w.Logger.Warn("file systems that turn read-only are not noticed", "err", err)
		}
	}
}

// reportFaults looks once, reports to the loop, and returns whether it found any. real is the root as the mount
// table has it. It reports that there are none only once, since each report is a change
// to everything that follows the manager, which is work with 1,000 volumes.
func (w *Mounts) reportFaults(ctx context.Context, loop Loop, real string, before bool) (ill bool, err error) {
	found, err := w.Kernel.Faults(ctx, real)
	if err != nil {
		return before, err
	}
	if len(found) == 0 && !before {
		return false, nil
	}
	faults := make(map[string]plan.Fault, len(found))
	for path, fault := range found {
		faults[w.Root+strings.TrimPrefix(path, real)] = plan.Fault(fault)
	}
	loop.MountFaults(faults)
	return len(found) > 0, nil
}
