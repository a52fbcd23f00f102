package node

import (
	"context"
	"errors"
	"sync"

	"github.com/csi-volmgr/csi-volmgr/pkg/watch"
)

// Run does the node's work until ctx ends, which is no error, or a part of it
// fails. What is mounted stays mounted. It is to be called once.
func (n *Node) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, n.Close()) }()
	if err := n.LoadDrain(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	if err := n.mounts.Suspect(ctx, n.journal, n.layout.Place); err != nil && ctx.Err() == nil {
		return err
	}
	if n.cluster != nil {
		if err := n.cluster.ClaimName(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	n.builtins.Tell(n.manager)
	n.warnIfUnshared()
	parts := []func(context.Context) error{
		n.manager.Run, n.controller.Run, n.made.Run, n.tellSizes, n.runSources,
		n.runStart, n.afterStart(n.podDirs().Run), n.afterStart(n.spareJournal), n.runJournal,
		n.loop(n.mounts.Run), n.loop(n.mounts.RunErred), n.registry.Run, n.Registrar.Run, n.stats.Run,
	}
	if n.cluster != nil {
		parts = append(parts, n.cluster.Parts()...)
	}
	for _, sweep := range n.sweeps {
		parts = append(parts, n.afterStart(sweep))
	}
	if n.runtime != nil {
		parts = append(parts, n.runtime.Run, n.runRuntimeView)
	}
	if n.cfg.LocalDriver {
		parts = append(parts, n.runLocalDriver)
	}
	return runAll(ctx, parts)
}

// loop returns part, which reports to the manager.
func (n *Node) loop(part func(context.Context, watch.Loop) error) func(context.Context) error {
	return func(ctx context.Context) error { return part(ctx, n.manager) }
}

// podDirs returns the sweep of directories that pods left.
func (n *Node) podDirs() watch.Pods {
	c := watch.PodsConfig{
		Root: n.cfg.Root, Mounts: n.kernel.List, Known: n.Known, KnowsPod: n.manager.KnowsPod,
		Changed: n.manager.Changed, Inputs: n.changed.next, Logger: n.log,
		Heard: func() bool { return len(n.Views().NotReady()) == 0 },
	}
	if n.measured != nil {
		c.Counted = n.measured.Leftovers
	}
	return watch.Pods{PodsConfig: c}
}

// runAll runs parts until all have returned; the first that fails ends the others.
func runAll(ctx context.Context, parts []func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i, part := range parts {
		wg.Go(func() {
			err := part(ctx)
			if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
				return // told to end, it did
			}
			if errs[i] = err; err != nil {
				cancel()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// runSources tells what was applied before and watches the manifests.
func (n *Node) runSources(ctx context.Context) error {
	if err := n.api.Load(ctx); err != nil {
		return err
	}
	close(n.loaded)
	if n.file == nil {
		return nil
	}
	return n.file.Run(ctx)
}

// runJournal ends the daemon when its journal is given up: nothing that it did could be
// remembered. Its supervisor starts it again, and the start reads what the journal
// holds, or goes by the spare copy, or says what is wrong with the disk.
func (n *Node) runJournal(ctx context.Context) error {
	select {
	case <-n.journal.GivenUp():
		return n.journal.Err()
	case <-ctx.Done():
		return nil
	}
}

// spareJournal makes the journal's spare copy: by then nobody waits for it.
func (n *Node) spareJournal(ctx context.Context) error {
	if err := n.journal.Spare(ctx); err != nil && ctx.Err() == nil {
		n.log.Warn("journal has no spare copy", "err", err)
	}
	return nil
}
