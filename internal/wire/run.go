package wire

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/csi-volmgr/csi-volmgr/internal/host/watch"
	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/api"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/file"
)

// Run runs the node until ctx ends, which is no error, or until one of its parts fails. Mounted volumes
// stay mounted. Call Run once.
func (n *Node) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, n.Close()) }()
	err = errors.Join(n.controller.ChooseStorageID(context.WithoutCancel(ctx)), n.LoadDrain(context.WithoutCancel(ctx)),
		n.Bindings.Load(context.WithoutCancel(ctx)))
	if err != nil {
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
	n.builtins.Register(n.manager)
	watch.WarnIfUnshared(n.kernel, n.cfg.Root, n.log)
	left := watch.PodsConfig{
		Root: n.cfg.Root, Mounts: n.kernel.List, Known: n.Known, KnowsPod: n.manager.KnowsPod,
		Changed: n.manager.Changed, Inputs: n.changed.next, Logger: n.log,
		Synced: func() bool { return len(n.views.NotReady()) == 0 },
	}
	if n.measured != nil {
		left.Counted = n.measured.Leftovers
	}
	parts := []func(context.Context) error{
		n.manager.Run, n.controller.Run, n.made.Run, n.Bindings.Run, n.Schedules.Run, n.Named.Run,
		reportSizes(n.manager, n.controller), ownSources(n.api, n.loaded, n.file), n.UntilStarted,
		n.AfterStart(watch.Pods{PodsConfig: left}.Run),
		n.AfterStart(spare(n.journal, n.log)), forLoop(n.manager, n.mounts.Run), forLoop(n.manager, n.mounts.RunFaults),
		untilGivenUp(n.journal), n.Registrar.Run, n.Collector.Run, n.builtins.Programs(n.manager), n.RunUIDs,
		func(ctx context.Context) error { return n.Drivers.Run(ctx, n.registry.Run) },
	}
	if n.cluster != nil {
		parts = append(parts, n.cluster.Parts()...)
	} else {
		parts = append(parts, n.Ephemeral.Run)
	}
	for _, sweep := range n.sweeps {
		parts = append(parts, n.AfterStart(sweep))
	}
	if n.runtime != nil {
		parts = append(parts, n.runtime.Run, following(n.runtime.Changed, n.changed.send))
	}
	if n.cfg.LocalDriver {
		parts = append(parts, localDriver(n.cfg, n.helpers, n.log))
	}
	return runAll(ctx, parts)
}

// forLoop returns part as a function that reports to the loop.
func forLoop(l watch.Loop, part func(context.Context, watch.Loop) error) func(context.Context) error {
	return func(ctx context.Context) error { return part(ctx, l) }
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
				return // it ended because ctx did
			}
			if errs[i] = err; err != nil {
				cancel()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// ownSources returns a function that loads the objects applied earlier, closes loaded, and then watches
// the manifests if f is not nil.
func ownSources(applied *api.Provider, loaded chan<- struct{}, f *file.Provider) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := applied.Load(ctx); err != nil {
			return err
		}
		close(loaded)
		if f == nil {
			return nil
		}
		return f.Run(ctx)
	}
}

// untilGivenUp returns a function that ends the daemon when the journal gives up, since the daemon could
// then record nothing of what it does. Its supervisor restarts it, and the start reads the journal, or
// uses the spare copy, or reports what is wrong with the disk.
func untilGivenUp(j *journal.Bolt) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-j.GivenUp():
			return j.Err()
		case <-ctx.Done():
			return nil
		}
	}
}

// spare returns a function that makes the journal's spare copy.
func spare(j *journal.Bolt, log *slog.Logger) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := j.Spare(ctx); err != nil && ctx.Err() == nil {
			log.Warn("journal has no spare copy", "err", err)
		}
		return nil
	}
}
