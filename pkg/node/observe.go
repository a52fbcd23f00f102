package node

import (
	"errors"
	"fmt"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/metrics"
	"github.com/csi-volmgr/csi-volmgr/pkg/registration"
)

// measure registers what is measured as it happens; it is called before there
// is anything to measure.
func (n *Node) measure() (err error) {
	if n.cfg.Metrics == nil {
		return nil
	}
	if n.metrics, err = csiclient.NewMetrics(n.cfg.Metrics); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	if n.measured, err = metrics.New(n.cfg.Metrics); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}

// count registers what is counted at each scrape.
func (n *Node) count() error {
	if n.cfg.Metrics == nil {
		return nil
	}
	r := n.cfg.Metrics
	err := errors.Join(metrics.Register(r, n.manager, time.Now), metrics.RegisterSELinux(r, n.manager),
		metrics.RegisterFound(r, n.manager.Found),
		metrics.RegisterRecovery(r, n.journal.Recovery, n.manager.Unrecorded),
		metrics.RegisterSockets(r, n.socketStates), metrics.RegisterOutage(r, n.cluster.AwaySince, time.Now),
		r.Register(n.stats))
	if kept, ok := n.tokens.(interface{ Soonest() (time.Time, bool) }); ok {
		err = errors.Join(err, metrics.RegisterTokens(r, kept.Soonest, time.Now))
	}
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}

// store is the journal, with its writes measured where that is asked for.
func (n *Node) store() (manager.Store, error) {
	if n.cfg.Metrics == nil {
		return n.journal, nil
	}
	return metrics.Journal(n.cfg.Metrics, n.journal)
}

// socketStates says of each registration socket whether its driver is registered.
func (n *Node) socketStates() map[string]bool {
	states := map[string]bool{}
	for _, s := range n.registry.Sockets() {
		states[s.Path] = s.State == registration.Up
	}
	return states
}

// callEnded is told by the manager of each call.
func (n *Node) callEnded(c manager.EndedCall) {
	n.Recorder.Record(c)
	n.cluster.CallEnded(c)
	if n.measured != nil {
		n.measured.Call(c)
	}
	if n.cfg.OnCall != nil {
		n.cfg.OnCall(c)
	}
}
