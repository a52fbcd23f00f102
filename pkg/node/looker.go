package node

import (
	"context"
	"errors"

	"github.com/csi-volmgr/csi-volmgr/pkg/intree/hostpath"
	"github.com/csi-volmgr/csi-volmgr/pkg/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// looker answers the manager's questions about the kernel.
type looker struct {
	k *mount.Kernel
	// allow are the directories where hostPath volumes may be.
	allow []string
}

// HostPath implements manager.Pather.
func (l looker) HostPath(ctx context.Context, path string) error {
	return l.k.Aside(ctx, path, func() error {
		f, err := hostpath.Open(l.allow, path)
		switch {
		case err == nil:
			return f.Close()
		case errors.Is(err, hostpath.ErrDenied):
			return err
		}
		return nil // it need not be there
	})
}

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
