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
	name := flag.String("name", "strict.csi-volmgr.dev", "CSI name")
	node := flag.String("node-id", "node-1", "node id")
	state := flag.String("state-dir", "", "directory of state, script and transcript")
	endpoint := flag.String("endpoint", "", "path of the CSI socket")
	registry := flag.String("registration-dir", "", "directory of registration sockets; empty: the driver does not register")
	flag.Parse()
	if *state == "" || *endpoint == "" {
		return errors.New("csi-strict: --state-dir and --endpoint must be set")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	d, err := csistrict.New(csistrict.Config{
		Name: *name, NodeID: *node, StateDir: *state, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	var served, registered error
	all.Go(func() { defer stop(); served = d.Serve(ctx, *endpoint) })
	if *registry != "" {
		all.Go(func() { defer stop(); registered = d.Register(ctx, *registry, *endpoint) })
	}
	all.Wait()
	return errors.Join(served, registered)
}
