package wire

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/metrics"
	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/registration"
)

// measure registers the metrics that are updated as things happen. If r is nil, it returns nil metrics.
func measure(r prometheus.Registerer) (c *csiclient.Metrics, m *metrics.Metrics, err error) {
	if r == nil {
		return nil, nil, nil
	}
	if c, err = csiclient.NewMetrics(r); err == nil {
		m, err = metrics.New(r)
	}
	if err != nil {
		err = fmt.Errorf("register metrics: %w", err)
	}
	return c, m, err
}

// count registers the metrics that are computed at each scrape.
func (n *Node) count() error {
	if n.cfg.Metrics == nil {
		return nil
	}
	r := n.cfg.Metrics
	err := errors.Join(metrics.Register(r, n.manager, time.Now), metrics.RegisterSELinux(r, n.manager),
		metrics.RegisterFound(r, n.manager.Found),
		metrics.RegisterRecovery(r, n.journal.Recovery, n.manager.Unrecorded),
		metrics.RegisterSockets(r, func() map[string]bool { return socketStates(n.registry.Sockets()) }),
		metrics.RegisterOutage(r, n.cluster.AwaySince, time.Now),
		r.Register(n.Collector))
	if kept, ok := n.tokens.(interface{ Soonest() (time.Time, bool) }); ok {
		err = errors.Join(err, metrics.RegisterTokens(r, kept.Soonest, time.Now))
	}
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}

// store returns the journal, and measures its writes if r is not nil.
func store(r prometheus.Registerer, j *journal.Bolt) (manager.Store, error) {
	if r == nil {
		return j, nil
	}
	return metrics.Journal(r, j)
}

// socketStates reports, for each registration socket, whether its driver is registered.
func socketStates(sockets []registration.SocketStatus) map[string]bool {
	states := map[string]bool{}
	for _, s := range sockets {
		states[s.Path] = s.State == registration.Up
	}
	return states
}
