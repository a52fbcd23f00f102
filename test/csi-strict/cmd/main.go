// The csi-strict program serves a strict CSI driver until it is told to end.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	// The flags are those of csi-driver-host-path, so that a program that starts that
	// driver can start this one.
	name := flag.String("drivername", "strict.csi-volmgr.dev", "CSI name")
	node := flag.String("nodeid", "node-1", "node id")
	state := flag.String("statedir", "", "directory of state, script and transcript")
	endpoint := flag.String("endpoint", "", "path of the CSI socket, with unix:// before it or without")
	attach := flag.Bool("enable-attach", false, "volumes have to be attached: PUBLISH_UNPUBLISH_VOLUME")
	registry := flag.String("registration-dir", "", "directory of registration sockets; empty: the driver does not register")
	verbosity := flag.Int("v", 0, "what is logged: 0 what goes wrong in the driver, 5 each call")
	flag.Parse()
	if *state == "" || *endpoint == "" {
		return errors.New("csi-strict: --statedir and --endpoint must be set")
	}
	socket := strings.TrimPrefix(*endpoint, "unix://")
	config := csistrict.Config{Name: *name, NodeID: *node, StateDir: *state}
	if !*attach {
		config.Without = []string{"PUBLISH_UNPUBLISH_VOLUME"}
	}
	level := slog.LevelInfo
	if *verbosity >= 5 {
		level = slog.LevelDebug
	}
	config.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	d, err := csistrict.New(config)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	var served, registered error
	all.Go(func() { defer stop(); served = d.Serve(ctx, socket) })
	if *registry != "" {
		all.Go(func() { defer stop(); registered = d.Register(ctx, *registry, socket) })
	}
	all.Wait()
	return errors.Join(served, registered)
}
