package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/csi-volmgr/csi-volmgr/pkg/localdriver"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

func (p *program) driverCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "driver",
		Short: "What drivers need that are not made for this node",
		Example: `  csi-volmgr driver register /run/my-driver/csi.sock
  csi-volmgr get drivers`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(p.registerCommand())
	return cmd
}

func (p *program) registerCommand() *cobra.Command {
	var dir, root string
	cmd := &cobra.Command{
		Use:   "register ENDPOINT",
		Short: "Register a CSI driver that does not do it itself, in place of a registrar",
		Long: `Register the CSI driver whose socket is ENDPOINT (a path, or unix://PATH) with
this node's daemon, until it is told to stop: what node-driver-registrar does
where there is one. It waits until the driver answers, and asks it for its name.`,
		Example: `  my-driver --endpoint=unix:///run/my-driver/csi.sock --nodeid=node-1 &
  csi-volmgr driver register unix:///run/my-driver/csi.sock &
  csi-volmgr get drivers`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("expected the path of one driver's socket")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if dir == "" {
				dir = filepath.Join(root, "plugins_registry")
			}
			return p.register(cmd.Context(), strings.TrimPrefix(args[0], "unix://"), dir)
		},
	}
	f := cmd.Flags()
	f.StringVar(&root, "root-dir", defaultRoot, "the daemon's `directory` for volumes")
	f.StringVar(&dir, "registration-dir", "", "`directory` of registration sockets (default ROOT-DIR/plugins_registry)")
	return cmd
}

// register announces the driver at endpoint until ctx ends.
func (p *program) register(ctx context.Context, endpoint, dir string) error {
	endpoint, err := filepath.Abs(endpoint)
	if err != nil {
		return err
	}
	name, err := driverName(ctx, endpoint)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("make the directory of registration sockets: %w", err)
	}
	_, _ = fmt.Fprintf(p.stderr, "driver %s answers at %s; waiting for a daemon that looks at %s\n", name, endpoint, dir)
	return localdriver.Announce(ctx, localdriver.Registration{
		RegisterConfig: localdriver.RegisterConfig{Dir: dir, Endpoint: endpoint}, Name: name,
		Told: func(refused error) {
			if refused == nil {
				_, _ = fmt.Fprintf(p.stderr, "driver %s is registered\n", name)
			} else {
				_, _ = fmt.Fprintf(p.stderr, "driver %s was refused: %v\n", name, refused)
			}
		},
	})
}

// driverName asks a driver for its name, once it answers.
func driverName(ctx context.Context, endpoint string) (string, error) {
	conn, err := grpc.NewClient("unix://"+endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "", fmt.Errorf("reach the driver at %s: %w", endpoint, err)
	}
	defer conn.Close()
	info, err := csi.NewIdentityClient(conn).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{}, grpc.WaitForReady(true))
	if err != nil && ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("ask the driver at %s for its name: %w", endpoint, err)
	}
	if info.GetName() == "" || strings.ContainsAny(info.GetName(), "/\x00") {
		return "", fmt.Errorf("the driver at %s calls itself %q: that is no name of a driver", endpoint, info.GetName())
	}
	return info.GetName(), nil
}
