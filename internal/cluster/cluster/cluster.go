// Package cluster connects a daemon to its API server: it reads the node's objects there, claims the
// node's name, and reports on volumes, drivers and expansions.
//
// Owns: the connection to the API server, and the identity of this instance of csi-volmgr.
//
// Does not: resolve objects (internal/wants/source), or decide about a volume (pkg/manager).
package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/client-go/rest"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/events"
	"github.com/csi-volmgr/csi-volmgr/internal/cluster/kube"
	"github.com/csi-volmgr/csi-volmgr/internal/cluster/kubeclient"
	"github.com/csi-volmgr/csi-volmgr/internal/cluster/podcert"
	"github.com/csi-volmgr/csi-volmgr/internal/cluster/report"
	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/stats"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/pkg/translate"
)

// Limits of the requests that a node sends, a second and at once: the kubelet's defaults. With them a
// start with hundreds of claims takes seconds. The server's own fairness does the rest.
const (
	clusterQPS   = 50
	clusterBurst = 100
)

// Config is what a Cluster needs; every field is required unless it says otherwise.
type Config struct {
	// REST is how to reach the API server. New sets its request limits, content type and user agent if
	// they are unset.
	REST     *rest.Config
	NodeName string
	Root     string
	// BootID names this boot of the node.
	BootID string
	// Alive is how the Node object shows that this daemon runs; the zero value means not at all.
	Alive report.Alive
	// Translate lists the in-tree kinds of volumes that are translated.
	Translate []string
	Loop      *manager.Manager
	Catalog   *source.Catalog
	Journal   *journal.Bolt
	// Limit asks a driver for its limit of volumes.
	Limit func(context.Context, state.DriverName) (int64, error)
	// Lost says that the journal may have lost records; "" if it has not.
	Lost func() string
	// Facts returns the current facts that an explanation is made from.
	Facts func() server.Facts
	// Stats returns drivers' last answers about volumes and their storage.
	Stats func() []stats.Status
	// Patience is that of [events.Config]; 0 means its default.
	Patience time.Duration
	// Changed is called when what Problems returns may have changed.
	Changed func()
	Logger  *slog.Logger
}

// Cluster is the API server's side of a node. Any goroutine may call its methods. Those that say so may
// be called on nil, which means that there is no cluster.
type Cluster struct {
	cfg Config

	Kube         *kube.Provider
	Report       *report.Reporter
	Certificates *podcert.Requester
	events       *events.Writer
}

// New makes the clients of the API server. It sends no request before Run.
func New(cfg Config) (*Cluster, error) {
	rc := rest.CopyConfig(cfg.REST)
	if rc.QPS == 0 {
		rc.QPS, rc.Burst = clusterQPS, clusterBurst
	}
	if rc.ContentType == "" {
		rc.ContentType = "application/vnd.kubernetes.protobuf"
		rc.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	}
	if rc.UserAgent == "" {
		rc.UserAgent = "csi-volmgr"
	}
	rc.Wrap(kube.Transport)
	// One HTTP client, so that all requests are streams of one connection.
	client, err := rest.HTTPClientFor(rc)
	if err != nil {
		return nil, fmt.Errorf("reach the API server: %w", err)
	}
	clients, err := kubeclient.New(rc, client)
	if err != nil {
		return nil, fmt.Errorf("reach the API server: %w", err)
	}
	bulk, err := kubeclient.New(rc, client) // with request limits of its own
	if err != nil {
		return nil, fmt.Errorf("reach the API server: %w", err)
	}
	c := &Cluster{cfg: cfg}
	c.Certificates = podcert.New(podcert.Config{
		Certificates: clients.Certificates, Beta: clients.CertificatesBeta,
		Core: clients.Core, NodeName: cfg.NodeName, Logger: cfg.Logger,
	})
	c.Report = report.New(report.Config{
		Core: clients.Core, Storage: clients.Storage, NodeName: cfg.NodeName, Volumes: cfg.Loop, Logger: cfg.Logger,
		Annotations: map[string]string{translate.MigratedAnnotation: translate.MigratedPlugins(cfg.Translate)},
		Limit:       cfg.Limit, Period: c.limitPeriod, Health: c.health, Alive: cfg.Alive,
		Mounted: c.mounted,
	})
	c.events = events.New(events.Config{
		NodeName: cfg.NodeName, Volumes: cfg.Loop, Objects: cfg.Catalog, Facts: cfg.Facts, Event: c.Report.Event,
		ExpandFailed: c.expandFailed, Lost: cfg.Lost, Patience: cfg.Patience,
	})
	c.Kube = kube.New(kube.Config{
		Core: clients.Core, Storage: clients.Storage, Bulk: bulk,
		Certificates: clients.Certificates, CertificatesBeta: clients.CertificatesBeta, NodeName: cfg.NodeName,
		Catalog: cfg.Catalog, OnNode: c.Report.Node, OnNodeRefused: c.Report.NodeRefused, KV: cfg.Journal, Logger: cfg.Logger,
	})
	return c, nil
}

// Parts returns the functions to run until their context ends. Call ClaimName first.
func (c *Cluster) Parts() []func(context.Context) error {
	return []func(context.Context) error{c.Kube.Run, c.Report.Run, c.runView, c.events.Run}
}

// Demand passes on which objects a pod of the API server needs (source.Config). On nil it does nothing.
func (c *Cluster) Demand(pod source.Key, objects []source.Key) {
	if c != nil {
		c.Kube.Demand(pod, objects)
	}
}

// CallEnded writes the event of a call that ended. On nil it does nothing.
func (c *Cluster) CallEnded(e manager.EndedCall) {
	if c != nil {
		c.events.Ended(e)
	}
}

// mounted reports whether anything of a volume may be on the node.
func (c *Cluster) mounted(id state.VolumeID) bool {
	v, ok := c.cfg.Loop.Volume(id)
	return ok && (v.Quarantined != "" || v.Volume.InUse())
}
