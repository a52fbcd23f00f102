package cluster

import (
	"context"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/report"
	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/source/kube"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// claimOf is the claim of the cluster through which a volume is used, if one.
func (c *Cluster) claimOf(v state.Volume) (report.Claim, bool) {
	if c == nil {
		return report.Claim{}, false
	}
	namespace, name, ok := strings.Cut(v.Spec.Claim, "/")
	key := source.Key{Kind: resolve.KindClaim, Namespace: namespace, Name: name}
	return report.Claim{Namespace: namespace, Name: name}, ok && c.cfg.Catalog.Provider(key) == kube.Name
}

// Expanding says in the claim that a driver is about to make a volume larger. On nil it
// does nothing.
func (c *Cluster) Expanding(ctx context.Context, v state.Volume) {
	if claim, ok := c.claimOf(v); ok {
		if err := c.Report.Expanding(ctx, claim); err != nil {
			c.cfg.Logger.Warn("claim does not show that it is being expanded", "volume", string(v.ID), "err", err)
		}
	}
}

// expandFailed says in the claim that a driver did not make a volume larger. An
// answer that was lost says nothing, nor does a call that was not made.
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

// Expanded says in the claim that a driver made a volume larger. On nil it does nothing.
func (c *Cluster) Expanded(v state.Volume) {
	if claim, ok := c.claimOf(v); ok {
		c.Report.Expanded(claim, v.SizeBytes)
	}
}
