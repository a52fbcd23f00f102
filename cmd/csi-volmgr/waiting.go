package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
)

// patience is how long a verb waits before it says what it waits for, and how often it looks.
const patience = 3 * time.Second

// printWaiting writes what t waits for to stderr, each time it changes, until stop is called. stop
// returns once nothing more will be written. A deletion may wait for a pod's volume to be unmounted, or
// for a driver's answer.
func (p *program) printWaiting(ctx context.Context, c *client.Client, t target) (stop func()) {
	ended, said := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(said)
		ticker := time.NewTicker(cmp.Or(p.patience, patience))
		defer ticker.Stop()
		for last := ""; ; {
			select {
			case <-ticker.C:
			case <-ended:
				return
			case <-ctx.Done():
				return
			}
			if text := p.waitsFor(ctx, c, t); text != "" && text != last {
				last = text
				_, _ = fmt.Fprintf(p.stderr, "waiting: %s %s: %s\n", t.kind, t.name, text)
			}
		}
	}()
	return func() {
		close(ended)
		<-said
	}
}

// waitsFor returns the step that t is at and why; "" if that is unknown.
func (p *program) waitsFor(ctx context.Context, c *client.Client, t target) string {
	e, err := c.Explain(ctx, t.kind, t.name)
	if err != nil {
		return ""
	}
	var all []string
	for _, l := range e.Lines {
		if slices.Contains([]string{"claim", "step", "because", "unmount"}, l.Label) {
			all = append(all, plain(l.Text))
		}
	}
	return strings.Join(all, "; ")
}
