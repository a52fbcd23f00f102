// Package apiserver connects a node with the server of its API: what the API shows and does is the
// node's, for the daemon and for programs that embed the node.
package apiserver

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/builtins"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/operate"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/tools/doctor"
	"github.com/csi-volmgr/csi-volmgr/internal/wire"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// New takes the sockets that c names and returns the server of n's API. cfg is n's configuration; c says
// where the API is and for whom, and the version of the program.
func New(ctx context.Context, n *wire.Node, cfg wire.Config, c server.Config) (*server.Server, error) {
	m, views := n.Manager(), n.Views()
	c.Logger = cmp.Or(cfg.Logger, slog.Default())
	c.Volumes, c.FollowPods = m, func() server.PodFeed { return m.FollowPods() }
	c.Started, c.Settle, c.Verify = n.Started(), m.Settle, m.Verify
	c.Objects, c.Claims, c.Health, c.Containers, c.Stats, c.Trace = n, views, views, n, n, n
	c.Lacks, c.Unreached, c.Catalog = builtins.Lacks, doctor.Reaching(cfg.Root, c.Logger), views.Objects
	c.Controller = controllerOf(n)
	c.Operator, c.Drainer, c.Registrar, c.Schedules, c.Note = n, n, n, n.Schedules, n.Note
	c.Ends, c.Named = n.PodEnds, operate.NamedAPI{Provider: n.Named}
	c.Version.Node, c.Version.RootDir, c.Version.StateDir = cfg.Name, cfg.Root, cfg.StateDir
	c.Version.RegistrationDir, c.Version.Cluster = cfg.RegistrationDir, cfg.Cluster != nil
	if cfg.Cluster == nil { // a cluster's sidecars make its volumes
		c.Storage = n.Objects
	}
	return server.New(ctx, c)
}

// controllerOf returns the function that shows drivers' Controller services.
func controllerOf(n *wire.Node) func(state.DriverName) *server.ControllerStatus {
	return func(name state.DriverName) *server.ControllerStatus {
		c, known := n.Controller(name)
		if !known {
			return nil
		}
		return &server.ControllerStatus{
			Endpoint: c.Endpoint, Up: c.Up, Problem: c.Problem, Version: c.Version, Capabilities: c.Capabilities,
			Generation: c.Generation, Since: c.Since,
		}
	}
}
