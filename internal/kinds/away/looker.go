package away

import (
	"context"
	"errors"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/hostpath"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Kernel answers the manager loop's questions about the kernel (manager.Kernel).
type Kernel struct {
	Kernel  *mount.Kernel
	Helpers isolate.Doer
	// Allow lists the directories at or below which hostPath volumes may be.
	Allow []string
}

// HostPath implements manager.Kernel.
func (l Kernel) HostPath(ctx context.Context, path string) error {
	_, err := isolate.Ask[any](ctx, l.Helpers, "host path "+path, callHostPath, hostPathRequest{path, l.Allow})
	return err
}

// callHostPath is the name of the helper's call for [Kernel.HostPath].
const callHostPath = "host-path"

type hostPathRequest struct {
	Path  string   `json:"path"`
	Allow []string `json:"allow,omitempty"`
}

// doHostPath runs in the helper.
func doHostPath(_ context.Context, r hostPathRequest) (any, error) {
	f, err := hostpath.Open(r.Allow, r.Path)
	switch {
	case err == nil:
		return nil, f.Close()
	case errors.Is(err, hostpath.ErrDenied):
		return nil, err
	}
	return nil, nil // the path need not exist
}

// Look implements manager.Kernel.
func (l Kernel) Look(ctx context.Context, path string) (state.Seen, error) {
	i, err := l.Kernel.Look(ctx, path)
	return state.Seen(i), err
}

// Elsewhere implements manager.Kernel.
func (l Kernel) Elsewhere(ctx context.Context, path string) ([]string, error) {
	return l.Kernel.Elsewhere(ctx, path)
}

// Size implements manager.Kernel.
func (l Kernel) Size(ctx context.Context, path string) (state.Sizes, error) {
	s, err := l.Kernel.Size(ctx, path)
	return state.Sizes(s), err
}

// Probe implements manager.Kernel.
func (l Kernel) Probe(ctx context.Context, path string) error { return l.Kernel.Probe(ctx, path) }
