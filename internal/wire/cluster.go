package wire

import (
	"context"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/cluster"
	"github.com/csi-volmgr/csi-volmgr/internal/cluster/token"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/stats"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// wireCluster makes the connection to the API server, if there is one.
func (n *Node) wireCluster() (err error) {
	if n.cfg.Cluster == nil {
		return nil
	}
	n.cluster, err = cluster.New(cluster.Config{
		REST: n.cfg.Cluster, NodeName: n.cfg.Name, Root: n.cfg.Root, BootID: n.bootID, Alive: n.cfg.NodeAlive,
		Translate: n.cfg.translated(), Loop: n.manager, Catalog: n.catalog, Journal: n.journal,
		Limit: func(ctx context.Context, name state.DriverName) (int64, error) { return n.Drivers.Limit(ctx, name) },
		Lost:  n.views.Lost, Facts: func() server.Facts {
			return server.Facts{
				Pods: n.manager.Pods(), Volumes: n.manager.Volumes(), Drivers: n.manager.Drivers(),
				Sockets: n.views.Sockets(), Now: time.Now(),
			}
		},
		Stats:    func() []stats.Status { return n.Collector.LastStats() },
		Patience: n.cfg.waitPatience, Changed: n.changed.send, Logger: n.log,
	})
	if err == nil && n.cfg.Tokens == nil {
		n.tokens = token.NewCache(n.cluster.Kube, n.log)
	}
	return err
}

// reportSizes returns a function that reports to the controller the size of each volume on the node: the
// daemon may have ended before the controller recorded an expansion.
func reportSizes(m *manager.Manager, c *controller.Controller) func(context.Context) error {
	return func(ctx context.Context) error {
		if m.Settle(ctx) != nil {
			return nil // the node is shutting down
		}
		for _, s := range m.Volumes() {
			if s.Volume.InUse() {
				c.NodeSize(s.Volume.ID, s.Volume.SizeBytes)
			}
		}
		return nil
	}
}
