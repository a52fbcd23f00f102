package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/host/outage"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// runView reports changes of what the node API shows of the API server, and logs when an outage begins
// and ends.
func (c *Cluster) runView(ctx context.Context) error {
	was := outage.Cause("")
	for {
		changed := c.Kube.Changed()
		c.cfg.Changed()
		away, _ := c.findings()
		switch {
		case away != nil && away.Cause != was:
			was = away.Cause
			c.cfg.Logger.Warn("API server is away", "cause", string(was), "since", away.Since, "err", away.Reason, "waits",
				len(away.Waits))
		case away == nil && was != "":
			was = ""
			c.cfg.Logger.Info("API server is back")
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// findings returns the API server's outage, nil if there is none, and the objects that could not be read
// from it or written to it for other reasons.
func (c *Cluster) findings() (*outage.Outage, []outage.Finding) {
	if c == nil {
		return nil, nil
	}
	return outage.Fold(slices.Concat(c.Kube.Findings(), c.Report.Findings()))
}

// AwayText describes the API server's outage; "" if there is none, or if c is nil.
func (c *Cluster) AwayText() string {
	if away, _ := c.findings(); away != nil {
		return away.Text(c.cfg.REST.Host)
	}
	return ""
}

// AwaySince returns when the API server's outage began; zero if there is none, or if c is nil.
func (c *Cluster) AwaySince() time.Time {
	if away, _ := c.findings(); away != nil {
		return away.Since
	}
	return time.Time{}
}

// Problems lists an outage as one problem, then the other problems. It lists none if c is nil.
func (c *Cluster) Problems() []server.Problem {
	away, rest := c.findings()
	var out []server.Problem
	if away != nil {
		out = append(out, server.Problem{
			Source: source.Kube, Code: server.APIServerAway, Object: "API server " + c.cfg.REST.Host,
			Message: away.Text(c.cfg.REST.Host), Since: away.Since, Consequences: away.Waits,
		})
	}
	for _, f := range rest {
		out = append(out, server.Problem{Source: source.Kube, Object: f.What, Message: f.Text, Since: f.Since})
	}
	return out
}
