package main

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/csi-volmgr/csi-volmgr/internal/localdriver"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
)

// driverOptions has the flags of local-driver.
type driverOptions struct {
	name, nodeID, rootDir, stateDir, endpoint, registrationDir string

	log logOptions
}

func (p *program) localDriverCommand() *cobra.Command {
	var o driverOptions
	cmd := &cobra.Command{
		Use:   "local-driver",
		Short: "Run the CSI driver for volumes on this node's own disk",
		Long: `Run a CSI driver whose volumes are files and directories on this node, as a
process of its own. It registers like any other driver. The daemon serves the
same driver itself with: csi-volmgr run --local-driver`,
		Example: `  csi-volmgr local-driver --node-id=node-1`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(); err != nil {
				return err
			}
			if err := p.needRoot(cmd); err != nil {
				return err
			}
			return p.serveDriver(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.name, "name", localdriver.DefaultName, "CSI `name` of the driver")
	f.StringVar(&o.nodeID, "node-id", "", "`name` of this node (default the host's)")
	f.StringVar(&o.rootDir, "root-dir", defaultRoot, "`directory` below which the daemon mounts volumes")
	f.StringVar(&o.stateDir, "state-dir", "/var/lib/csi-volmgr/local-driver", "`directory` of the volumes' data")
	f.StringVar(&o.endpoint, "endpoint", "", "`path` of its CSI socket (default ROOT-DIR/plugins/NAME/csi.sock)")
	f.StringVar(&o.registrationDir, "registration-dir", "",
		"`directory` of registration sockets (default ROOT-DIR/plugins_registry)")
	logFlags(cmd, &o.log)
	return cmd
}

func (o *driverOptions) complete() error {
	if o.endpoint == "" {
		o.endpoint = filepath.Join(o.rootDir, "plugins", o.name, "csi.sock")
	}
	if o.registrationDir == "" {
		o.registrationDir = filepath.Join(o.rootDir, "plugins_registry")
	}
	return hostName(&o.nodeID)
}

// serveDriver serves the driver and registers it until ctx ends.
func (p *program) serveDriver(ctx context.Context, o driverOptions) error {
	logger := p.logger(o.log)
	klog.SetSlogLogger(logger)
	return localdriver.Run(ctx, localdriver.Config{
		Name: o.name, NodeID: o.nodeID, StateDir: o.stateDir, Roots: []string{o.rootDir}, Logger: logger,
	}, localdriver.RegisterConfig{Dir: o.registrationDir, Endpoint: o.endpoint})
}

// runBoth runs a and b until both have returned; the end of one ends the other.
func runBoth(ctx context.Context, a, b func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	second := make(chan error, 1)
	go func() {
		defer cancel()
		second <- b(ctx)
	}()
	first := a(ctx)
	cancel()
	return errors.Join(first, <-second)
}
