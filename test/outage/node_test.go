package outage

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/kube"
	"github.com/csi-volmgr/csi-volmgr/internal/cluster/kubeclient"
	"github.com/csi-volmgr/csi-volmgr/internal/cluster/report"
	"github.com/csi-volmgr/csi-volmgr/internal/host/outage"
	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const driverName = "d.test"

// Requests a second, and in a burst, as in internal/wire.
const (
	perSecond = 50
	atOnce    = 100
)

// node is a node with its daemon. The journal and the mounts outlive the daemon; only the
// journal survives a reboot.
type node struct {
	t       *testing.T
	c       *cluster
	name    string
	boots   int
	journal *journal.Memory
	held    bool // the daemon had the node's name in its last run

	mu     sync.Mutex // guards the fields below
	mounts map[string]bool
	dirs   map[string]bool // of configMaps
	staged map[string]bool // by handle
	calls  map[string]int  // by verb

	provider *kube.Provider
	catalog  *source.Catalog
	manager  *manager.Manager
	reporter *report.Reporter
	stop     func()
}

// newNode registers a node without a daemon.
func (c *cluster) newNode(name string) *node {
	n := &node{t: c.t, c: c, name: name, journal: journal.NewMemory(), boots: 1, mounts: map[string]bool{}, dirs: map[string]bool{}, staged: map[string]bool{}, calls: map[string]int{}}
	c.server.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	c.mu.Lock()
	c.nodes[name] = &attached{node: n, wants: map[string]int{}, has: map[string]bool{}}
	c.mu.Unlock()
	return n
}

// start starts the daemon.
func (n *node) start() {
	var err error
	wrap := func(next http.RoundTripper) http.RoundTripper { return kube.Transport(n.c.between(next, n)) }
	core, storage := n.c.server.LimitedClients(wrap, perSecond, atOnce)
	bulkCore, bulkStorage := n.c.server.LimitedClients(wrap, perSecond, atOnce)
	quiet := slog.New(slog.DiscardHandler)
	n.manager, err = manager.New(manager.Config{
		Store: n.journal, Kernel: n, Sources: []string{source.Kube}, BootID: fmt.Sprint("boot-", n.boots), InUseHandshake: true, Logger: quiet,
		OnCall: n.callEnded,
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.reporter = report.New(report.Config{Core: core, Storage: storage, NodeName: n.name, Volumes: n.manager, Logger: quiet})
	n.reporter.Claim(report.Claimant{
		Instance: report.Instance{ID: n.name}, HeldBefore: n.held,
		Standing: func(holds bool, why string) { n.held = holds; n.manager.SetHold(why) },
	})
	n.catalog = source.New(source.Config{
		Resolve: resolve.Config{
			Layout: state.Layout{Root: "/r"}, NodeName: n.name, ClusterAttach: true,
			Builtins: []state.DriverName{"kubernetes.io/configmap"},
		},
		Sink: n.manager, Remote: source.Kube,
		Demand: func(pod source.Key, keys []source.Key) { n.provider.Demand(pod, keys) },
	})
	n.provider = kube.New(kube.Config{
		Core: core, Storage: storage, Bulk: &kubeclient.Clients{Core: bulkCore, Storage: bulkStorage}, NodeName: n.name,
		Catalog: n.catalog, OnNode: n.reporter.Node, OnNodeRefused: n.reporter.NodeRefused, KV: n.journal, Logger: quiet,
	})
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, run := range []func(context.Context) error{n.manager.Run, n.reporter.Run, n.provider.Run} {
		all.Go(func() {
			if err := run(ctx); err != nil {
				n.t.Errorf("%s: %v", n.name, err)
			}
		})
	}
	n.stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	n.t.Cleanup(n.stop)
	n.manager.DriverUp(manager.DriverInfo{Name: driverName, Stage: true, Expand: true, MountsTarget: true}, (*driver)(n))
	n.manager.DriverUp(manager.DriverInfo{Name: "kubernetes.io/configmap", Builtin: true}, (*driver)(n))
	n.reporter.DriverUp(report.Driver{Name: driverName, NodeID: n.name})
}

// reboot stops the daemon, removes all mounts as a power failure does, and starts the
// daemon in another boot.
func (n *node) reboot(keepJournal bool) {
	n.stop()
	n.mu.Lock()
	n.boots++
	n.mounts, n.staged, n.dirs = map[string]bool{}, map[string]bool{}, map[string]bool{}
	n.mu.Unlock()
	if !keepJournal {
		n.journal, n.held = journal.NewMemory(), false
	}
	n.start()
}

// callEnded writes the Event that internal/wire writes about a pod's volume.
func (n *node) callEnded(e manager.EndedCall) {
	if e.Op != plan.Publish || e.Error != "" || !strings.HasPrefix(string(e.Driver), driverName) {
		return
	}
	n.reporter.Event(report.Event{
		About:  corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: string(e.Pod)},
		Reason: "SuccessfulMountVolume", Text: "mounted",
	})
}

// ready returns how many pods have all their volumes.
func (n *node) ready() (ready int) {
	for _, p := range n.manager.Pods() {
		if p.Ready {
			ready++
		}
	}
	return ready
}

// away returns the outage that the node shows, or nil.
func (n *node) away() *outage.Outage {
	away, _ := outage.Fold(append(n.provider.Findings(), n.reporter.Findings()...))
	return away
}

// count returns how often a verb of the driver was called.
func (n *node) count(verb string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.calls[verb]
}

// mounted returns the number of mounts.
func (n *node) mounted() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.mounts)
}

// Look implements manager.Kernel.
func (n *node) Look(_ context.Context, path string) (state.Seen, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.mounts[path] {
		return state.Seen{Exists: n.dirs[path]}, nil
	}
	return state.Seen{Exists: true, Mounted: true, Layers: 1, Dev: 7, MountID: 7}, nil
}

func (*node) Elsewhere(context.Context, string) ([]string, error) { return nil, nil }
func (*node) Size(context.Context, string) (state.Sizes, error)   { return state.Sizes{}, nil }
func (*node) Probe(context.Context, string) error                 { return nil }
func (*node) HostPath(context.Context, string) error              { return nil }

// driver is the node's driver, also for its configMaps; each call takes 10 ms.
type driver node

func (d *driver) do(verb string, v state.Volume, what func()) error {
	time.Sleep(10 * time.Millisecond)
	d.mu.Lock()
	defer d.mu.Unlock()
	if !v.Spec.Builtin {
		d.calls[verb]++
	}
	what()
	return nil
}

func (d *driver) Stage(_ context.Context, v state.Volume) error {
	return d.do("Stage", v, func() {
		d.c.judge((*node)(d), v.Spec.Handle)
		d.staged[v.Spec.Handle], d.mounts[v.Spec.StagePath] = true, true
	})
}

func (d *driver) Publish(_ context.Context, v state.Volume, pod state.PodUID) (time.Time, error) {
	return time.Time{}, d.do("Publish", v, func() {
		if v.Spec.Builtin {
			d.dirs[v.Mounts[pod].Target] = true
			return
		}
		d.c.judge((*node)(d), v.Spec.Handle)
		if !d.staged[v.Spec.Handle] || d.mounts[v.Mounts[pod].Target] {
			d.t.Errorf("%s: %s is published for %s, staged %v, mounted already %v", d.name, v.Spec.Handle, pod, d.staged[v.Spec.Handle], d.mounts[v.Mounts[pod].Target])
		}
		d.mounts[v.Mounts[pod].Target] = true
	})
}

func (d *driver) Unpublish(_ context.Context, v state.Volume, pod state.PodUID) error {
	return d.do("Unpublish", v, func() {
		delete(d.mounts, v.Mounts[pod].Target)
		delete(d.dirs, v.Mounts[pod].Target)
	})
}

func (d *driver) Unstage(_ context.Context, v state.Volume) error {
	return d.do("Unstage", v, func() {
		delete(d.mounts, v.Spec.StagePath)
		delete(d.staged, v.Spec.Handle)
	})
}

func (d *driver) Expand(_ context.Context, v state.Volume, _ state.PodUID, bytes int64) (int64, error) {
	return bytes, d.do("Expand", v, func() {})
}
