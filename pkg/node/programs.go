package node

import (
	"context"

	"github.com/csi-volmgr/csi-volmgr/pkg/doctor"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Unreached says why what the process behind a driver's endpoint mounts below the
// root does not appear here; "" where it does, or where that cannot be told.
func (n *Node) Unreached(ctx context.Context, endpoint string) string {
	why, err := doctor.Unreached(ctx, endpoint, n.cfg.Root)
	if err != nil {
		n.log.Debug("driver's mount namespace cannot be looked at", "endpoint", endpoint, "err", err)
	}
	return why
}

// Lacks returns the programs without which no volume of a built-in kind can be
// mounted, and that this node does not have now.
func (n *Node) Lacks(name state.DriverName) []string { return n.builtins.Lacks(name) }
