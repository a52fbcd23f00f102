package node

import (
	"errors"
	"fmt"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/metrics"
	"github.com/csi-volmgr/csi-volmgr/pkg/registration"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
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
		metrics.RegisterSockets(r, n.socketStates), metrics.RegisterOutage(r, n.awaySince, time.Now), r.Register(n.stats))
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

// Calls returns the last calls of some volumes, by when they began.
func (n *Node) Calls(ids ...state.VolumeID) []manager.EndedCall { return n.calls.Calls(ids...) }

// CallsNamed returns the volumes of a name of which calls are kept (server.Trace).
func (n *Node) CallsNamed(name string) []state.VolumeID { return n.calls.Named(name) }

// CallsOfPod returns the volumes of a pod of which calls are kept (server.Trace).
func (n *Node) CallsOfPod(name string) []state.VolumeID { return n.calls.OfPod(name) }

// AllCalls returns the last calls of every volume, by when they began.
func (n *Node) AllCalls() []manager.EndedCall { return n.calls.AllCalls() }

// callEnded is told by the manager of each call.
func (n *Node) callEnded(c manager.EndedCall) {
	n.calls.Record(c)
	if n.events != nil {
		n.events.Ended(c)
	}
	if n.measured != nil {
		n.measured.Call(c)
	}
	if n.cfg.OnCall != nil {
		n.cfg.OnCall(c)
	}
}
