package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/controller"
	"github.com/csi-volmgr/csi-volmgr/pkg/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/source/made"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// sourcesTime is how long sources may take to tell what they have before an adoption.
const sourcesTime = time.Minute

// listing hears what the sources list, for a daemon that does not run.
type listing struct {
	controller *controller.Controller
	made       *made.Provider
	heard      *source.Heard
	catalog    *source.Catalog
	changed    *signal
	sources    []func(context.Context) error
}

// pods returns the pods that the sources list, once each has spoken; it mounts nothing.
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
		return nil, fmt.Errorf("learn which volumes are wanted: %w", err)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("learn which volumes are wanted: sources %s have not told all within %v: %w",
			strings.Join(l.heard.Silent(), ", "), sourcesTime, context.Cause(ctx))
	}
	return l.catalog.Wants(), nil
}

// showOwn tells the volumes that csi-volmgr made itself, as they are in the journal.
func (l listing) showOwn(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return runAll(ctx, []func(context.Context) error{l.controller.Run, func(ctx context.Context) error {
		select {
		case <-l.controller.Loaded():
		case <-ctx.Done():
			return ctx.Err()
		}
		defer cancel() // it is to make and delete nothing
		return l.made.Show()
	}})
}

// untilSynced calls end once every source has spoken and what pods name is known.
func (l listing) untilSynced(ctx context.Context, end func()) error {
	for {
		changed := l.changed.next()
		if len(l.heard.Silent()) == 0 && !l.catalog.Asking() {
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
