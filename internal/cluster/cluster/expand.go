package cluster

import (
	"context"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/report"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// claimOf returns the cluster's claim for a volume, if it has one.
func (c *Cluster) claimOf(v state.Volume) (report.Claim, bool) {
	if c == nil {
		return report.Claim{}, false
	}
	namespace, name, ok := strings.Cut(v.Spec.Claim, "/")
	key := source.Key{Kind: resolve.KindClaim, Namespace: namespace, Name: name}
	claim := report.Claim{Namespace: namespace, Name: name, Volume: v.Spec.Name}
	return claim, ok && c.cfg.Catalog.Provider(key) == source.Kube
}

// Expanding shows in the claim that a driver is about to expand a volume. On nil it does nothing.
func (c *Cluster) Expanding(ctx context.Context, v state.Volume) {
	if claim, ok := c.claimOf(v); ok {
		if err := c.Report.Expanding(ctx, claim); err != nil {
			c.cfg.Logger.Warn("cannot show in the claim that its volume is being expanded", "volume", string(v.ID), "err", err)
		}
	}
}

// expandFailed shows in the claim that a driver failed to expand a volume. It skips calls whose answer
// was lost and calls that were never made.
func (c *Cluster) expandFailed(e manager.EndedCall, v state.Volume) {
	claim, ok := c.claimOf(v)
	if !ok || e.Outcome == state.Uncertain.String() || e.Code == "" && !e.NoEffect {
		return
	}
	c.Report.ExpandFailed(claim, report.ExpandFailure{
		Bytes: e.SizeBytes, Text: server.Failure(e.Retry), Attempts: e.Retry.Attempts,
		Infeasible: state.CodeOf("", e.Code).Infeasible,
	})
}

// Expanded shows in the claim that a driver has expanded a volume. On nil it does nothing.
func (c *Cluster) Expanded(v state.Volume) {
	if claim, ok := c.claimOf(v); ok {
		c.Report.Expanded(claim, v.SizeBytes)
	}
}
