package watch

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Journal is what Suspect reads and writes of the journal.
type Journal interface {
	Load(ctx context.Context) (state.Loaded, error)
	// Suspect notes durably that records may be lost.
	Suspect(ctx context.Context, why string) error
}

// Suspect notes in a new journal that records may be lost, where the kernel shows volumes
// below the root without a record: an operator may have deleted both the journal and its
// spare copy. A journal is new until a daemon has noted its boot in it.
func (w *Mounts) Suspect(ctx context.Context, journal Journal, place func(path string) (state.Place, bool)) error {
	loaded, err := journal.Load(ctx)
	if err != nil || loaded.BootID != "" {
		return err
	}
	recorded := map[string]bool{}
	for _, v := range loaded.Volumes {
		recorded[v.Spec.StagePath] = true
		for _, m := range v.Mounts {
			recorded[m.Target] = true
		}
	}
	real, err := filepath.EvalSymlinks(w.Root)
	if err != nil {
		return fmt.Errorf("resolve the root directory: %w", err)
	}
	entries, err := w.Kernel.List(ctx, real)
	if err != nil {
		return fmt.Errorf("look for what is mounted below %s: %w", w.Root, err)
	}
	for _, e := range entries {
		if p, is := place(w.Root + strings.TrimPrefix(e.Path, real)); is && !recorded[p.Path] {
			return journal.Suspect(ctx, "the journal is new, and something is mounted at "+p.Path)
		}
	}
	return nil
}
