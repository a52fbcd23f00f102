package node

import (
	"context"
	"errors"

	"github.com/csi-volmgr/csi-volmgr/pkg/isolate"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// dead returns why the FUSE file system of a volume at path is known to have no
// server; nil for what is no FUSE file system, and where it could not be asked.
func (n *Node) dead(ctx context.Context, v state.Volume, path string) error {
	if !n.isFuse(path) {
		return nil
	}
	err := n.aliveFUSE(shared(ctx, v), path)
	if ctx.Err() != nil || errors.Is(err, isolate.ErrLimit) {
		return nil
	}
	return err
}

// aliveFUSE returns nil if the FUSE file system at target has a server. It is
// asked itself only where it has none, or the kernel does not say: a server that
// does not answer would have the question hold the mount, which could not be
// unmounted any more.
func (n *Node) aliveFUSE(ctx context.Context, target string) error {
	if served, err := n.kernel.FUSEServed(ctx, target); err == nil && served {
		return nil
	}
	return n.kernel.Probe(ctx, target)
}

// isFuse reports whether a FUSE file system was mounted at path when the mount
// table was read last.
func (n *Node) isFuse(path string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.fuse[path]
	return ok
}
