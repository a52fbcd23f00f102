package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/token"
	"github.com/csi-volmgr/csi-volmgr/internal/doors/docker"
	"github.com/csi-volmgr/csi-volmgr/internal/host/systemd"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	volumes "github.com/csi-volmgr/csi-volmgr/internal/wants/named"
	"github.com/csi-volmgr/csi-volmgr/internal/wire"
	"github.com/csi-volmgr/csi-volmgr/internal/wire/apiserver"
	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// tokenIssuer returns the issuer of service account tokens; nil if there is none.
func tokenIssuer(o runOptions) (csiclient.TokenSource, error) {
	if o.tokenKey == "" {
		return nil, nil
	}
	key, err := token.ReadKey(o.tokenKey)
	if err != nil {
		return nil, err
	}
	return token.NewSigner(key, o.tokenIssuer)
}

// runNode runs the daemon until ctx ends. It takes the journal, root directory and socket before it does
// anything, so that a second daemon ends here.
func runNode(ctx context.Context, o runOptions, logger *slog.Logger) error {
	notifier, err := systemd.New(os.Getenv, os.Getpid())
	if err != nil {
		return err
	}
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	cfg, err := nodeConfig(o, logger)
	if err != nil {
		return err
	}
	cfg.Metrics = metrics
	group, err := readers(o.readers)
	if err != nil {
		return err
	}
	passed, err := systemd.Listener(os.Getenv, os.Getpid(), o.socket)
	if err != nil {
		return err
	}
	endTraces, err := traced(ctx, &cfg, o.traces, logger)
	if err != nil {
		return err
	}
	defer endTraces()
	n, err := wire.New(cfg)
	if err != nil {
		return err
	}
	s, err := apiserver.New(ctx, n, cfg, server.Config{
		Socket: o.socket, Passed: passed, Readers: group, Profiles: o.profiles, HTTPAddress: o.httpAddress, Page: o.page,
		Metrics: metrics, Version: thisVersion(),
	})
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Net == "tcp" && errors.Is(err, syscall.EADDRINUSE) {
		err = portTaken(err, op.Addr)
	}
	if err != nil {
		return errors.Join(err, n.Close())
	}
	plugin, err := volumePlugin(ctx, o, docker.Config{
		Volumes: n.Named.For(volumes.Asker{FrontEnd: volumes.Docker}), Explain: s.ExplainClaim, Note: n.Note, Logger: logger,
	})
	if err != nil {
		return errors.Join(err, s.Close(), n.Close())
	}
	logger.Info("daemon starts", "version", thisVersion().Version, "node", o.node.Name, "root", o.node.Root,
		"socket", o.socket, "http", s.HTTPAddress())
	end := notifySystemd(ctx, notifier, n, logger)
	err = runBoth(ctx, n.Run, withPlugin(s.Run, plugin))
	end()
	logger.Info("daemon ends; what is mounted stays mounted")
	return err
}

// nodeConfig returns the node's configuration, with what is read from files.
func nodeConfig(o runOptions, logger *slog.Logger) (wire.Config, error) {
	c := o.node
	var err error
	if c.Tokens, err = tokenIssuer(o); err != nil {
		return wire.Config{}, err
	}
	if c.Cluster, err = clusterConfig(o.kubeconfig); err != nil {
		return wire.Config{}, err
	}
	c.RuntimeDir, c.Helper, c.Logger = filepath.Dir(o.socket), helper, logger
	return c, nil
}

// helper returns the command of a helper: the file of this process, even if another has been installed in
// its place.
func helper() *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", helperArg)
	cmd.Args[0], cmd.Dir, cmd.Stderr = "csi-volmgr", "/", os.Stderr
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	return cmd
}
