package node

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/drivers"
	"github.com/csi-volmgr/csi-volmgr/pkg/fsgroup"
	"github.com/csi-volmgr/csi-volmgr/pkg/handover/disk"
	"github.com/csi-volmgr/csi-volmgr/pkg/localdriver"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// wireDrivers makes what dials the drivers that register.
func (n *Node) wireDrivers() {
	c := drivers.Config{
		Loop: n.manager, Controllers: n.controller, Client: n.client, Logger: n.log,
		Serve: func(d *csiclient.Driver, i csiclient.Info) manager.Driver {
			return fsgroup.Driver{Driver: adopted{d, n.parts.Keeper}, Config: fsgroup.Config{
				Root: n.root, Helpers: n.helpers, Groups: i.MountGroup, Progress: n.manager.Progress, Logger: n.log,
			}}
		},
	}
	if n.cluster != nil {
		c.Cluster = n.cluster.Report
	}
	n.drivers = drivers.New(c)
}

// client is how a driver is dialled.
func (n *Node) client(name state.DriverName) csiclient.Config {
	deadlines, ok := n.cfg.Deadlines[name]
	if !ok {
		deadlines = n.cfg.Deadlines[resolve.Any]
	}
	return csiclient.Config{
		Peers: n.cfg.DriverUIDs[name], Root: n.cfg.Root, Secrets: secrets{n}, Tokens: n.tokens, Deadlines: deadlines,
		Metrics: n.metrics, Logger: n.log,
	}
}

// adopted is a driver whose volumes may have been taken over from a kubelet, which kept
// files of its own beside their stages.
type adopted struct {
	*csiclient.Driver
	keeper disk.Keeper
}

// Unstage implements manager.Driver.
func (d adopted) Unstage(ctx context.Context, v state.Volume) error {
	if err := d.keeper.BeforeUnstage(ctx, v); err != nil {
		return fmt.Errorf("remove what a kubelet kept of the volume: %w", err)
	}
	return d.Driver.Unstage(ctx, v)
}

// runLocalDriver serves the embedded driver. It registers like any other.
func (n *Node) runLocalDriver(ctx context.Context) error {
	return localdriver.Run(ctx, localdriver.Config{
		NodeID: n.cfg.Name, StateDir: filepath.Join(n.cfg.StateDir, "local-driver"), Roots: []string{n.cfg.Root},
		Logger: n.log,
	}, localdriver.RegisterConfig{
		Dir: n.cfg.RegistrationDir, Endpoint: filepath.Join(n.layout.Plugins(), localdriver.DefaultName, "csi.sock"),
	})
}
