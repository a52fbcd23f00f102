// Package report writes this node's state to the API server: which volumes are in use,
// which drivers serve the node, and that a controller may attach volumes to it.
//
// Of the Node it owns the annotations volumes.kubernetes.io/controller-managed-attach-detach,
// csi.volume.kubernetes.io/nodeid, csi-volmgr.dev/volumes-in-use-writer and
// csi-volmgr.dev/holder, which gives one daemon the node's name (ADR 24), the labels of
// drivers' topology, status.volumesInUse, and the condition and taint of Alive. It also
// owns the node's CSINode and when drivers are asked for their limits in it, the status
// of a claim whose volume was expanded here, Pod.status.volumeHealth,
// CSINode.status.storageHealth, Events, and the pauses between attempts.
//
// It does not decide which volumes are in use (package manager does), nor create a Node:
// the agent that runs the pods registers it.
//
// The manager may stage or publish a volume that a controller attaches only while the
// newest Node that was seen lists it in status.volumesInUse and in
// status.volumesAttached, and the watch has shown that Node, since package kube forgets
// attachments by it. The controller removes a volume from volumesAttached, then
// reads volumesInUse, then detaches. So if a Node lists a volume in both, a later detach
// sees it in use (kubernetes, pkg/controller/volume/attachdetach). A volume stays in use
// until everything of it is gone (rule 3): a list without a volume is sent only after
// the manager has learned that it must not use the volume. If another program replaces
// the list, it is written again. A write carries the version of the Node that it was made
// for, so that a delayed write replaces nothing. Nothing is reported before all sources
// have spoken, all records were compared with the kernel, and the Node was read.
//
// Run does all writing; the other methods never block.
package report

import (
	"context"
	"crypto/rand"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/kubeclient"
	"github.com/csi-volmgr/csi-volmgr/internal/host/outage"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Volumes knows the volumes in use; *manager.Manager implements it.
type Volumes interface {
	// AttachedInUse lists the volumes in use that a controller attaches. all is false if
	// there may be others that the manager does not know.
	AttachedInUse() (used []state.InUse, all bool)
	ReconcilerStatesHasBeenSynced() bool
	MarkVolumesAsReportedInUse([]state.VolumeID)
	Settle(context.Context) error
	Changed() <-chan struct{}
}

// Driver is a registered driver with its answer to NodeGetInfo.
type Driver struct {
	Name     state.DriverName
	NodeID   string
	Topology map[string]string
	// MaxVolumes is how many volumes it serves on this node; 0 and less mean no known limit.
	MaxVolumes int64
}

// Config is the configuration of a [Reporter].
type Config struct {
	Core     *kubeclient.Core
	Storage  *kubeclient.Storage
	NodeName string
	Volumes  Volumes
	// Mounted reports whether anything of a volume may be on the node; nil means that it is never known.
	Mounted func(state.VolumeID) bool
	// Annotations are set on the CSINode; an empty value removes one. Other annotations
	// are left alone.
	Annotations map[string]string
	// Limit asks a registered driver how many volumes it currently serves on this node
	// (NodeGetInfo). It is called concurrently, but not for the same driver. If nil, no
	// driver is asked.
	Limit func(context.Context, state.DriverName) (int64, error)
	// Period returns how often Limit is called for a driver, from its CSIDriver
	// (spec.nodeAllocatableUpdatePeriodSeconds); 0 means never.
	Period func(state.DriverName) time.Duration
	// Health returns the health of volumes and storage. If nil, health is not reported.
	Health func() Health
	// Alive says how the Node shows that this daemon runs; the zero value means not at all.
	Alive Alive
	// Logger may be nil.
	Logger *slog.Logger
}

// Reporter writes this node's state to the API server. See the package comment.
type Reporter struct {
	config Config
	logger *slog.Logger
	writer string // see WriterAnnotation
	claim  Claimant
	health chan struct{} // capacity 1: signals that health may have changed

	mu sync.Mutex // guards the fields below
	// node is the newest Node from the watch, nil while there is none.
	node *corev1.Node
	// seen is set once the watch has said whether the Node exists, or may not be read.
	seen bool
	// standing says whether this daemon has the node's name. rival is set if another
	// daemon may have volumes of this node mounted too.
	standing nameState
	rival    bool
	// held says why nothing new may be mounted here, "" if it may.
	held    string
	drivers map[state.DriverName]Driver
	// gone has the drivers that were unregistered since the daemon started.
	gone     map[state.DriverName]bool
	full     map[state.DriverName]bool // drivers whose limits must be asked for now
	sizes    map[Claim]int64           // not written yet
	failures map[Claim]ExpandFailure   // not written yet
	events   []*corev1.Event           // not written yet, the oldest first
	changed  chan struct{}

	problems outage.Findings
}

// New returns a Reporter that writes nothing until Run is called.
func New(c Config) *Reporter {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Reporter{
		standing: holding,
		config:   c, logger: c.Logger, writer: strings.ToLower(rand.Text()), changed: make(chan struct{}),
		health:  make(chan struct{}, 1),
		drivers: map[state.DriverName]Driver{}, gone: map[state.DriverName]bool{},
		sizes: map[Claim]int64{}, failures: map[Claim]ExpandFailure{}, full: map[state.DriverName]bool{},
	}
}

// Node sets this node's object; nil if it does not exist.
func (r *Reporter) Node(n *corev1.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.node, r.seen = n, true
	r.notify()
}

// NodeRefused says that the daemon's identity may not read the Node, so that the
// Reporter stops waiting for it.
func (r *Reporter) NodeRefused() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = true
	r.notify()
}

// Wake makes Run look again, because the result of Config.Period may have changed.
func (r *Reporter) Wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notify()
}

// DriverUp adds a driver that registered, or replaces one whose answers changed.
func (r *Reporter) DriverUp(d Driver) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drivers[d.Name] = d
	delete(r.gone, d.Name)
	r.notify()
}

// DriverDown removes a driver that was unregistered.
func (r *Reporter) DriverDown(name state.DriverName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.drivers, name)
	r.gone[name] = true
	r.notify()
}

// notify makes Run look again. The caller holds r.mu.
func (r *Reporter) notify() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// view is a copy of the state that Run's goroutines write.
type view struct {
	node    *corev1.Node
	drivers map[state.DriverName]Driver
	gone    map[state.DriverName]bool
	rival   bool // another daemon may have volumes of this node mounted too
}

// view returns the current state and the channel that its next change closes. The Node
// is nil unless this daemon has the node's name. A daemon that lost the name gets the
// Node too if own is set: it still reports the volumes that it has mounted.
func (r *Reporter) view(own bool) (view, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := view{r.node, maps.Clone(r.drivers), maps.Clone(r.gone), r.rival}
	if r.standing != holding && !(own && r.standing == deprived) {
		v.node = nil
	}
	return v, r.changed
}

// Run writes until ctx ends, then returns nil. It returns ErrNameTaken if another daemon
// has the node's name. Run must be called only once.
func (r *Reporter) Run(ctx context.Context) error {
	var all sync.WaitGroup
	var refused error
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	all.Go(func() {
		if refused = r.runHolder(ctx); refused != nil {
			cancel()
		}
	})
	all.Go(func() { r.runInUse(ctx) })
	all.Go(func() { r.runAlive(ctx) })
	all.Go(func() { r.runDrivers(ctx) })
	all.Go(func() { r.runClaims(ctx) })
	all.Go(func() { r.runEvents(ctx) })
	if r.config.Limit != nil {
		all.Go(func() { r.runLimits(ctx) })
	}
	if r.config.Health != nil {
		all.Go(func() { r.runHealth(ctx) })
	}
	all.Wait()
	return refused
}

// answerTime bounds each request to the API server.
const answerTime = 30 * time.Second
