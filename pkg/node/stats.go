package node

import (
	"context"

	"github.com/csi-volmgr/csi-volmgr/pkg/health"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/pkg/stats"
)

// asker returns what asks how volumes fare.
func (n *Node) asker() *health.Asker {
	usage := map[state.DriverName]health.Usage{}
	for name, u := range n.builtins.Usage() {
		usage[name] = health.Usage(u)
	}
	return &health.Asker{Volumes: n.manager, Drivers: n.drivers.Registered, Usage: usage, Mounts: n.mounts}
}

// Stats lists how full volumes are and how they fare (server.Stats). Figures are
// asked for as long as it is called now and then; who calls it first waits for
// them, a second at most.
func (n *Node) Stats(ctx context.Context) []stats.Status { return n.stats.Stats(ctx) }

// LastStats lists what volumes and drivers last said of themselves; nobody is
// asked for its sake.
func (n *Node) LastStats() []stats.Status { return n.stats.LastStats() }
