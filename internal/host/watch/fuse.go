package watch

import (
	"context"
	"errors"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Dead returns an error if the FUSE file system of a volume at path is known to have no
// server. It returns nil for any other file system, and if the file system could not be
// asked.
func (w *Mounts) Dead(ctx context.Context, v state.Volume, path string) error {
	if !w.IsFUSE(path) {
		return nil
	}
	err := w.Served(Within(ctx, v), path)
	if ctx.Err() != nil || errors.Is(err, isolate.ErrLimit) {
		return nil
	}
	return err
}

// Served returns nil if the FUSE file system at target has a server. It asks the file
// system itself only if the kernel reports no server, or does not say: a server that
// does not answer would keep the mount busy meanwhile.
func (w *Mounts) Served(ctx context.Context, target string) error {
	if served, err := w.Kernel.FUSEServed(ctx, target); err == nil && served {
		return nil
	}
	return w.Kernel.Probe(ctx, target)
}

// IsFUSE reports whether a FUSE file system was mounted at path when the mount table
// was last read.
func (w *Mounts) IsFUSE(path string) bool {
	_, ok := w.FUSE()[path]
	return ok
}

// FUSE returns the paths at which FUSE file systems were mounted when the mount table
// was last read. Callers must not change it.
func (w *Mounts) FUSE() map[string]struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fuse
}

func (w *Mounts) setFUSE(paths map[string]struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fuse = paths
}
