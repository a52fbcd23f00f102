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
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/builtins"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/operate"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/tools/doctor"
	"github.com/csi-volmgr/csi-volmgr/internal/wire"
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
	version := thisVersion()
	version.Node, version.RootDir, version.StateDir = o.node.Name, cfg.Root, cfg.StateDir
	version.RegistrationDir, version.Cluster = cfg.RegistrationDir, cfg.Cluster != nil
	s, err := server.New(ctx, server.Config{
		Socket: o.socket, Passed: passed, Readers: group, Profiles: o.profiles, HTTPAddress: o.httpAddress, Page: o.page,
		Volumes: n.Manager(), FollowPods: func() server.PodFeed { return n.Manager().FollowPods() },
		Started: n.Started(), Settle: n.Manager().Settle, Verify: n.Manager().Verify,
		Objects: n, Claims: n.Views(), Health: n.Views(), Containers: n, Stats: n, Trace: n, Lacks: builtins.Lacks,
		Unreached: doctor.Reaching(cfg.Root, logger), Catalog: n.Views().Objects, Ends: n.PodEnds,
		Metrics: metrics, Version: version, Logger: logger,
		Operator: n, Drainer: n, Registrar: n, Note: n.Note, Named: operate.NamedAPI{Provider: n.Named},
		Schedules: n.Schedules, Storage: storageOf(n, cfg),
	})
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Net == "tcp" && errors.Is(err, syscall.EADDRINUSE) {
		err = portTaken(err, op.Addr)
	}
	if err != nil {
		return errors.Join(err, n.Close())
	}
	plugin, err := volumePlugin(ctx, o, docker.Config{Volumes: n.Named, Explain: s.ExplainClaim, Logger: logger})
	if err != nil {
		return errors.Join(err, s.Close(), n.Close())
	}
	logger.Info("daemon starts", "version", version.Version, "node", o.node.Name, "root", o.node.Root, "socket", o.socket,
		"http", s.HTTPAddress())
	end := notifySystemd(ctx, notifier, n, logger)
	err = runBoth(ctx, n.Run, withPlugin(s.Run, plugin))
	end()
	logger.Info("daemon ends; what is mounted stays mounted")
	return err
}

// storageOf returns what lists volumes in drivers' storage; nil in a cluster, whose sidecars make the
// volumes.
func storageOf(n *wire.Node, cfg wire.Config) server.Storage {
	if cfg.Cluster != nil {
		return nil
	}
	return n.Objects
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
