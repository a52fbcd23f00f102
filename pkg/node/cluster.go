package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/csi-volmgr/csi-volmgr/pkg/events"
	"github.com/csi-volmgr/csi-volmgr/pkg/kubeclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/outage"
	"github.com/csi-volmgr/csi-volmgr/pkg/podcert"
	"github.com/csi-volmgr/csi-volmgr/pkg/report"
	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/source/kube"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/pkg/token"
	"github.com/csi-volmgr/csi-volmgr/pkg/translate"
)

// Requests a second that a node may send, and at once: the kubelet's defaults. A
// start with hundreds of claims takes seconds by them; the server's own fairness
// does the rest.
const (
	clusterQPS   = 50
	clusterBurst = 100
)

// wireCluster makes what speaks to the API server.
func (n *Node) wireCluster() error {
	c := rest.CopyConfig(n.cfg.Cluster)
	if c.QPS == 0 {
		c.QPS, c.Burst = clusterQPS, clusterBurst
	}
	if c.ContentType == "" {
		c.ContentType = "application/vnd.kubernetes.protobuf"
		c.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	}
	if c.UserAgent == "" {
		c.UserAgent = "csi-volmgr"
	}
	c.Wrap(kube.Transport)
	// One client, so that all requests are streams of one connection.
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		return fmt.Errorf("reach the API server: %w", err)
	}
	clients, err := kubeclient.New(c, client)
	if err != nil {
		return fmt.Errorf("reach the API server: %w", err)
	}
	bulk, err := kubeclient.New(c, client) // with limits of their own
	if err != nil {
		return fmt.Errorf("reach the API server: %w", err)
	}
	n.certificates = podcert.New(podcert.Config{
		Certificates: clients.Certificates, Beta: clients.CertificatesBeta,
		Core: clients.Core, NodeName: n.cfg.Name, Logger: n.log,
	})
	n.report = report.New(report.Config{
		Core: clients.Core, Storage: clients.Storage, NodeName: n.cfg.Name, Volumes: n.manager, Logger: n.log,
		Annotations: map[string]string{translate.MigratedAnnotation: translate.MigratedPlugins(n.cfg.translated())},
		Limit:       func(ctx context.Context, name state.DriverName) (int64, error) { return n.drivers.Limit(ctx, name) },
		Period:      n.limitPeriod, Alive: n.cfg.NodeAlive,
	})
	n.events = events.New(events.Config{
		NodeName: n.cfg.Name, Volumes: n.manager, Objects: n.catalog, Facts: n.facts, Event: n.report.Event,
		ExpandFailed: n.expandFailed, Lost: n.views.Lost, Patience: n.cfg.waitPatience,
	})
	n.kube = kube.New(kube.Config{
		Core: clients.Core, Storage: clients.Storage, Bulk: bulk,
		Certificates: clients.Certificates, CertificatesBeta: clients.CertificatesBeta, NodeName: n.cfg.Name,
		Catalog: n.catalog, OnNode: n.report.Node, OnNodeRefused: n.report.NodeRefused, KV: n.journal, Logger: n.log,
	})
	if n.cfg.Tokens == nil {
		n.tokens = token.NewCache(n.kube, n.log)
	}
	return nil
}

// facts are what an explanation is made from.
func (n *Node) facts() server.Facts {
	return server.Facts{
		Pods: n.manager.Pods(), Volumes: n.manager.Volumes(), Drivers: n.manager.Drivers(),
		Sockets: n.views.Sockets(), Now: time.Now(),
	}
}

// demand passes on what pods of the API server need; see source.Config.
func (n *Node) demand(pod source.Key, objects []source.Key) {
	if n.kube != nil {
		n.kube.Demand(pod, objects)
	}
}

// runClusterView tells the node API when what it shows of the API server changes, and
// the log when an outage begins and ends.
func (n *Node) runClusterView(ctx context.Context) error {
	was := outage.Cause("")
	for {
		changed := n.kube.Changed()
		n.changed.send()
		away, _ := n.clusterFindings()
		switch {
		case away != nil && away.Cause != was:
			was = away.Cause
			n.log.Warn("API server is away", "cause", string(was), "since", away.Since, "err", away.Reason, "waits",
				len(away.Waits))
		case away == nil && was != "":
			was = ""
			n.log.Info("API server is back")
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// clusterFindings returns the API server's outage, nil where there is none, and what
// could not be read from it or written to it for other reasons.
func (n *Node) clusterFindings() (*outage.Outage, []outage.Finding) {
	if n.kube == nil {
		return nil, nil
	}
	return outage.Fold(slices.Concat(n.kube.Findings(), n.report.Findings()))
}

// awayText is the API server's outage in words; "" where there is none.
func (n *Node) awayText() string {
	if away, _ := n.clusterFindings(); away != nil {
		return away.Text(n.cfg.Cluster.Host)
	}
	return ""
}

// awaySince is when the API server's outage began; zero where there is none.
func (n *Node) awaySince() time.Time {
	if away, _ := n.clusterFindings(); away != nil {
		return away.Since
	}
	return time.Time{}
}

// clusterProblems lists an outage as one problem, and the others.
func (n *Node) clusterProblems() []server.Problem {
	away, rest := n.clusterFindings()
	var out []server.Problem
	if away != nil {
		out = append(out, server.Problem{
			Source: kube.Name, Code: server.APIServerAway, Object: "API server " + n.cfg.Cluster.Host,
			Message: away.Text(n.cfg.Cluster.Host), Since: away.Since, Consequences: away.Waits,
		})
	}
	for _, f := range rest {
		out = append(out, server.Problem{Source: kube.Name, Object: f.What, Message: f.Text, Since: f.Since})
	}
	return out
}

// claimOf is the claim of the cluster through which a volume is used, if one.
func (n *Node) claimOf(v state.Volume) (report.Claim, bool) {
	namespace, name, ok := strings.Cut(v.Spec.Claim, "/")
	key := source.Key{Kind: resolve.KindClaim, Namespace: namespace, Name: name}
	return report.Claim{Namespace: namespace, Name: name}, ok && n.report != nil && n.catalog.Provider(key) == kube.Name
}

// expanding says that a driver is about to make a volume larger.
func (n *Node) expanding(ctx context.Context, v state.Volume) {
	if c, ok := n.claimOf(v); ok {
		if err := n.report.Expanding(ctx, c); err != nil {
			n.log.Warn("claim does not show that it is being expanded", "volume", string(v.ID), "err", err)
		}
	}
}

// expandFailed says in the claim that a driver did not make a volume larger. An
// answer that was lost says nothing, nor does a call that was not made.
func (n *Node) expandFailed(c manager.EndedCall, v state.Volume) {
	claim, ok := n.claimOf(v)
	if !ok || c.Outcome == state.Uncertain.String() || c.Code == "" && !c.NoEffect {
		return
	}
	n.report.ExpandFailed(claim, report.ExpandFailure{
		Bytes: c.SizeBytes, Text: server.Failure(c.Retry), Attempts: c.Retry.Attempts,
		Infeasible: state.CodeOf("", c.Code).Infeasible,
	})
}

// expanded hears of every volume that a driver made larger.
func (n *Node) expanded(v state.Volume) {
	n.controller.NodeSize(v.ID, v.SizeBytes)
	if c, ok := n.claimOf(v); ok {
		n.report.Expanded(c, v.SizeBytes)
	}
}

// tellSizes tells the controller what the node serves of each volume, as when the
// daemon ended before the controller had written that one has grown.
func (n *Node) tellSizes(ctx context.Context) error {
	if n.manager.Settle(ctx) != nil {
		return nil // all ends
	}
	for _, s := range n.manager.Volumes() {
		if s.Volume.InUse() {
			n.controller.NodeSize(s.Volume.ID, s.Volume.SizeBytes)
		}
	}
	return nil
}

// reportSize has a claim of the cluster show a size that the node serves already,
// as when the daemon ended before that was written.
func (n *Node) reportSize(key source.Key) {
	if n.report == nil || n.catalog.Provider(key) != kube.Name {
		return
	}
	claim, ok := n.catalog.Get(key).(*corev1.PersistentVolumeClaim)
	if !ok {
		return
	}
	if _, resizing := claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage]; !resizing {
		return
	}
	pv, ok := n.catalog.Get(source.Key{Kind: resolve.KindVolume, Name: claim.Spec.VolumeName}).(*corev1.PersistentVolume)
	if !ok || pv.Spec.CSI == nil {
		return
	}
	v, ok := n.manager.Volume(state.SharedID(state.DriverName(pv.Spec.CSI.Driver), pv.Spec.CSI.VolumeHandle))
	if ok && v.Volume.InUse() && v.Volume.SizeBytes > 0 && v.Volume.SizeBytes >= pv.Spec.Capacity.Storage().Value() {
		n.report.Expanded(report.Claim{Namespace: key.Namespace, Name: key.Name}, v.Volume.SizeBytes)
	}
}
