package node

import (
	"errors"
	"fmt"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/metrics"
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
	if err := errors.Join(metrics.Register(n.cfg.Metrics, n.manager, time.Now), metrics.RegisterSELinux(n.cfg.Metrics, n.manager), metrics.RegisterFound(n.cfg.Metrics, n.manager.Found), n.cfg.Metrics.Register(n.stats)); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}

// Calls returns the last calls of some volumes, by when they began.
func (n *Node) Calls(ids ...state.VolumeID) []manager.EndedCall { return n.calls.Calls(ids...) }

// callEnded is told by the manager of each call.
func (n *Node) callEnded(c manager.EndedCall) {
	n.calls.Record(c)
	if n.report != nil {
		select {
		case n.ended <- c:
		default: // so many at once are in the log, and no event
		}
	}
	if n.measured != nil {
		n.measured.Call(c)
	}
	if n.cfg.OnCall != nil {
		n.cfg.OnCall(c)
	}
}
