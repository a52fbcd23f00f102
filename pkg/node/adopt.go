package node

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// sourcesTime is how long sources may take to tell what they have, before volumes are
// taken over from a kubelet.
const sourcesTime = time.Minute

// hearSources returns the pods that the sources list, once each has spoken.
// Nothing is made of what they say.
func (n *Node) hearSources(ctx context.Context) (map[state.PodUID]state.PodWant, error) {
	ctx, cancel := context.WithTimeout(ctx, sourcesTime)
	defer cancel()
	if err := n.showOwn(ctx); err != nil {
		return nil, err
	}
	heard, end := context.WithCancel(ctx)
	defer end()
	parts := []func(context.Context) error{n.runSources, func(ctx context.Context) error { return n.untilHeard(ctx, end) }}
	if n.cluster != nil {
		parts = append(parts, n.cluster.Kube.Run)
	}
	if err := runAll(heard, parts); err != nil {
		return nil, fmt.Errorf("learn which volumes are wanted: %w", err)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("learn which volumes are wanted: sources %s have not told all within %v: %w",
			strings.Join(n.heard.Silent(), ", "), sourcesTime, context.Cause(ctx))
	}
	return n.catalog.Wants(), nil
}

// showOwn tells the volumes that csi-volmgr made itself, as they are in the journal.
func (n *Node) showOwn(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return runAll(ctx, []func(context.Context) error{n.controller.Run, func(ctx context.Context) error {
		select {
		case <-n.controller.Loaded():
		case <-ctx.Done():
			return ctx.Err()
		}
		defer cancel() // it is to make and delete nothing
		return n.made.Show()
	}})
}

// untilHeard calls end once every source has spoken and what pods name is known.
func (n *Node) untilHeard(ctx context.Context, end func()) error {
	for {
		changed := n.changed.next()
		if len(n.heard.Silent()) == 0 && !n.catalog.Asking() {
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
