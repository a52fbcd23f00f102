package watch

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Journal is the part of the journal that Suspect uses.
type Journal interface {
	// BootID returns the boot under which the records were last written; "" if never set.
	BootID(ctx context.Context) (string, error)
	Load(ctx context.Context) (state.Loaded, error)
	// Suspect records durably that volume records may be lost.
	Suspect(ctx context.Context, why string) error
}

// Suspect marks a new journal as possibly incomplete if the kernel shows volumes below
// the root without a record: an operator may have deleted both the journal and its
// spare copy. A journal is new until a daemon has stored its boot ID in it.
func (w *Mounts) Suspect(ctx context.Context, journal Journal, place func(path string) (state.Place, bool)) error {
	boot, err := journal.BootID(ctx)
	if err != nil || boot != "" {
		return err
	}
	loaded, err := journal.Load(ctx)
	if err != nil {
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
		return fmt.Errorf("list the mounts below %s: %w", w.Root, err)
	}
	for _, e := range entries {
		if p, is := place(w.Root + strings.TrimPrefix(e.Path, real)); is && !recorded[p.Path] {
			return journal.Suspect(ctx, "the journal is new, and something is mounted at "+p.Path)
		}
	}
	return nil
}
