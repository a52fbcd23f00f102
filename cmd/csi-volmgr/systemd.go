package main

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	"github.com/csi-volmgr/csi-volmgr/internal/host/systemd"
	"github.com/csi-volmgr/csi-volmgr/internal/wire"
)

// notifySystemd reports to systemd that the daemon is ready, which sources it still waits for, and that
// it stops. The daemon is ready when its loop runs: its records are known then, and the API is served. It
// is ready even if a source is away for long, because mounted volumes are kept and shown. Call end to
// stop reporting.
func notifySystemd(ctx context.Context, s systemd.Notifier, n *wire.Node, log *slog.Logger) (end func()) {
	if !s.Wanted() {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var parts sync.WaitGroup
	parts.Go(func() {
		if n.Manager().Alive(ctx) != nil {
			return
		}
		last := ""
		for {
			changed := n.Views().Changed()
			status := "STATUS=ready"
			if missing := n.Views().NotReady(); len(missing) > 0 {
				status = "STATUS=" + strings.Join(missing, "; ")
			}
			if status != last {
				last = status
				note(s, log, "READY=1", status)
			}
			select {
			case <-changed:
			case <-ctx.Done():
				note(s, log, "STOPPING=1", "STATUS=stopping; what is mounted stays mounted")
				return
			}
		}
	})
	parts.Go(func() { s.Watch(ctx, n.Manager().Alive, log) })
	return func() {
		cancel()
		parts.Wait()
	}
}

func note(s systemd.Notifier, log *slog.Logger, states ...string) {
	if err := s.Notify(states...); err != nil {
		log.Warn("systemd was not notified of the daemon's state", "err", err)
	}
}
