package wire

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/drivers"
	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/fsgroup"
	"github.com/csi-volmgr/csi-volmgr/internal/localdriver"
	"github.com/csi-volmgr/csi-volmgr/internal/tools/handover/disk"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// wireDrivers makes the component that dials registered drivers.
func (n *Node) wireDrivers() {
	c := drivers.Config{
		Loop: n.manager, Controllers: n.controller, Logger: n.log, Changed: n.changed.send,
		Fixed:  n.cfg.Controllers,
		Client: clients(n.cfg, secrets{n}, n.tokens, n.metrics, n.log),
		Serve: func(d *csiclient.Driver, i csiclient.Info) manager.Driver {
			return fsgroup.Driver{Driver: adopted{d, n.parts.Keeper}, Config: fsgroup.Config{
				Root: n.root, Helpers: n.helpers, Groups: i.MountGroup, Progress: n.manager.Progress, Logger: n.log,
			}}
		},
	}
	if n.cluster != nil {
		c.Cluster = n.cluster.Report
	}
	n.Drivers = drivers.New(c)
}

// clients returns the function that configures the connection to a driver.
func clients(c Config, secrets csiclient.SecretReader, tokens csiclient.TokenSource, m *csiclient.Metrics,
	log *slog.Logger,
) func(state.DriverName) csiclient.Config {
	return func(name state.DriverName) csiclient.Config {
		deadlines, ok := c.Deadlines[name]
		if !ok {
			deadlines = c.Deadlines[resolve.Any]
		}
		return csiclient.Config{
			Peers: c.DriverUIDs[name], Root: c.Root, Secrets: secrets, Tokens: tokens, Deadlines: deadlines, Metrics: m,
			NodeOnly: c.Cluster != nil, Logger: log,
		}
	}
}

// adopted is a driver whose volumes may have been taken over from a kubelet, which kept files of its own
// next to their stages.
type adopted struct {
	*csiclient.Driver
	keeper disk.Keeper
}

// Unstage implements manager.Driver.
func (d adopted) Unstage(ctx context.Context, v state.Volume) error {
	if err := d.keeper.BeforeUnstage(ctx, v); err != nil {
		return fmt.Errorf("remove the kubelet's files of the volume: %w", err)
	}
	return d.Driver.Unstage(ctx, v)
}

// localDriver returns a function that serves the embedded driver, which registers like any other driver.
func localDriver(c Config, helpers *isolate.Pool, log *slog.Logger) func(context.Context) error {
	dir := filepath.Join(c.StateDir, "local-driver")
	socket := filepath.Join(state.Layout{Root: c.Root}.Plugins(), localdriver.DefaultName, "csi.sock")
	return func(ctx context.Context) error {
		return localdriver.Run(ctx,
			localdriver.Config{NodeID: c.Name, StateDir: dir, Roots: []string{c.Root}, Helpers: helpers, Logger: log},
			localdriver.RegisterConfig{Dir: c.RegistrationDir, Endpoint: socket})
	}
}
