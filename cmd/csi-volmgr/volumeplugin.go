package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/csi-volmgr/csi-volmgr/internal/doors/docker"
	"github.com/csi-volmgr/csi-volmgr/internal/host/systemd"
)

// pluginSocket is where dockerd looks for the plugin that -d csi names.
const pluginSocket = "/run/docker/plugins/csi.sock"

// pluginFlags adds the flags of the volume plugin.
func pluginFlags(cmd *cobra.Command, o *runOptions) {
	f := cmd.Flags()
	f.BoolVar(&o.plugin, "volume-plugin", false,
		"serve named volumes to Docker and podman; on by default if systemd passes its socket")
	f.StringVar(&o.pluginSocket, "volume-plugin-socket", pluginSocket,
		"`path` of the volume plugin's socket; its name without .sock is the plugin's name for dockerd")
}

// volumePlugin returns the volume plugin; c has its configuration but for the socket. It returns nil if
// the plugin is off and systemd passes no socket for it.
func volumePlugin(ctx context.Context, o runOptions, c docker.Config) (*docker.Server, error) {
	passed, err := systemd.Listener(os.Getenv, os.Getpid(), o.pluginSocket)
	if err != nil {
		return nil, fmt.Errorf("volume plugin: %w", err)
	}
	if passed == nil && !o.plugin {
		return nil, nil
	}
	c.Socket, c.Passed = o.pluginSocket, passed
	s, err := docker.New(ctx, c)
	if err != nil {
		return nil, err
	}
	c.Logger.Info("volume plugin starts", "socket", o.pluginSocket)
	return s, nil
}

// withPlugin runs the plugin next to another part of the daemon; plugin may be nil.
func withPlugin(run func(context.Context) error, plugin *docker.Server) func(context.Context) error {
	if plugin == nil {
		return run
	}
	return func(ctx context.Context) error { return runBoth(ctx, run, plugin.Run) }
}
