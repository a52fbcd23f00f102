package node

import (
	"context"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/cluster"
	"github.com/csi-volmgr/csi-volmgr/pkg/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/pkg/token"
)

// wireCluster makes what speaks to the API server, where there is one.
func (n *Node) wireCluster() (err error) {
	if n.cfg.Cluster == nil {
		return nil
	}
	n.cluster, err = cluster.New(cluster.Config{
		REST: n.cfg.Cluster, NodeName: n.cfg.Name, Root: n.cfg.Root, BootID: n.bootID, Alive: n.cfg.NodeAlive,
		Translate: n.cfg.translated(), Loop: n.manager, Catalog: n.catalog, Journal: n.journal,
		Limit: func(ctx context.Context, name state.DriverName) (int64, error) { return n.drivers.Limit(ctx, name) },
		Lost:  n.views.Lost, Facts: n.facts, Patience: n.cfg.waitPatience, Changed: n.changed.send, Logger: n.log,
	})
	if err == nil && n.cfg.Tokens == nil {
		n.tokens = token.NewCache(n.cluster.Kube, n.log)
	}
	return err
}

// facts are what an explanation is made from.
func (n *Node) facts() server.Facts {
	return server.Facts{
		Pods: n.manager.Pods(), Volumes: n.manager.Volumes(), Drivers: n.manager.Drivers(),
		Sockets: n.views.Sockets(), Now: time.Now(),
	}
}

// expanded hears of every volume that a driver made larger.
func (n *Node) expanded(v state.Volume) {
	n.controller.NodeSize(v.ID, v.SizeBytes)
	n.cluster.Expanded(v)
}

// tellSizes tells the controller what the node serves of each volume, as when the
// daemon ended before the controller had written that one has grown.
func (n *Node) tellSizes(ctx context.Context) error {
	if n.manager.Settle(ctx) != nil {
		return nil // all ends
	}
	for _, s := range n.manager.Volumes() {
		if s.Volume.InUse() {
			n.controller.NodeSize(s.Volume.ID, s.Volume.SizeBytes)
		}
	}
	return nil
}
