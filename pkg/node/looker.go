package node

import (
	"context"

	"github.com/csi-volmgr/csi-volmgr/pkg/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// looker answers the manager's questions about the kernel.
type looker struct{ k *mount.Kernel }

func (l looker) Look(ctx context.Context, path string) (state.Seen, error) {
	i, err := l.k.Look(ctx, path)
	return state.Seen(i), err
}

// Elsewhere implements manager.Finder.
func (l looker) Elsewhere(ctx context.Context, path string) ([]string, error) {
	return l.k.Elsewhere(ctx, path)
}

// Size implements manager.Sizer.
func (l looker) Size(ctx context.Context, path string) (state.Sizes, error) {
	s, err := l.k.Size(ctx, path)
	return state.Sizes(s), err
}

// Probe implements manager.Prober.
func (l looker) Probe(ctx context.Context, path string) error { return l.k.Probe(ctx, path) }
