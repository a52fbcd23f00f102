package wire

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/made"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// sourcesTime bounds how long an adoption waits for the sources to list what they have.
const sourcesTime = time.Minute

// listing collects what the sources list while the daemon does not run.
type listing struct {
	controller *controller.Controller
	made       *made.Provider
	sync       *source.SyncTracker
	catalog    *source.Catalog
	changed    *signal
	sources    []func(context.Context) error
}

// pods returns the pods that the sources list, once every source has spoken. It mounts nothing.
func (l listing) pods(ctx context.Context) (map[state.PodUID]state.PodWant, error) {
	ctx, cancel := context.WithTimeout(ctx, sourcesTime)
	defer cancel()
	if err := l.showOwn(ctx); err != nil {
		return nil, err
	}
	listening, end := context.WithCancel(ctx)
	defer end()
	parts := append(slices.Clone(l.sources), func(ctx context.Context) error { return l.untilSynced(ctx, end) })
	if err := runAll(listening, parts); err != nil {
		return nil, fmt.Errorf("list the wanted pods: %w", err)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("list the wanted pods: sources %s have not listed all within %v: %w",
			strings.Join(l.sync.Silent(), ", "), sourcesTime, context.Cause(ctx))
	}
	return l.catalog.Wants(), nil
}

// showOwn puts the volumes that csi-volmgr made itself into the catalog, from the journal.
func (l listing) showOwn(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.controller.NameByUID() // it makes nothing
	return runAll(ctx, []func(context.Context) error{l.controller.Run, func(ctx context.Context) error {
		select {
		case <-l.controller.Loaded():
		case <-ctx.Done():
			return ctx.Err()
		}
		defer cancel() // stop the controller before it makes or deletes anything
		l.made.Show()
		return nil
	}})
}

// untilSynced calls end once every source has spoken and the objects that pods name are known.
func (l listing) untilSynced(ctx context.Context, end func()) error {
	for {
		changed := l.changed.next()
		if len(l.sync.Silent()) == 0 && !l.catalog.Asking() {
			end()
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}
