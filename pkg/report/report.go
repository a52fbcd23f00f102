// Package report writes to the API server what this node has: which volumes are
// in use, which drivers serve it, and that a controller may attach for it.
//
// Owns: of the Node the annotations volumes.kubernetes.io/controller-managed-attach-detach,
// csi.volume.kubernetes.io/nodeid, csi-volmgr.dev/volumes-in-use-writer and
// csi-volmgr.dev/holder, by which one daemon has the node's name (ADR 24), the labels of
// drivers' topology, status.volumesInUse, and the condition and the taint of Alive; the
// CSINode of the node's name, and when drivers are asked for their limits in it; the
// status of a claim whose volume was made larger here; Pod.status.volumeHealth and
// CSINode.status.storageHealth; Events; the pauses between attempts.
//
// Does not: decide what is in use (package manager does), nor make a Node: the agent that
// runs the pods registers it.
//
// Invariants: the manager may make something of a volume that a controller attaches
// only while the newest Node that was seen lists it in status.volumesInUse and in
// status.volumesAttached. The controller takes a volume out of volumesAttached, then
// reads volumesInUse, then detaches: so a Node with both says that a later detach sees
// the volume in use (kubernetes, pkg/controller/volume/attachdetach). A volume stays
// in use until everything of it is gone (rule 3): a list that leaves a volume out is
// sent only after the manager was told that it may make nothing of it any more. A list
// that another program replaced is written again. A write asks for the version of the
// Node that it was made for, so that one that is applied late replaces nothing. Nothing is reported before all
// sources have spoken, all records were compared with the kernel, and the Node was read.
//
// Concurrency: Run owns what is written; the other methods never block.
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

	"github.com/csi-volmgr/csi-volmgr/pkg/kubeclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/outage"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Volumes is what is in use; manager.Manager is one.
type Volumes interface {
	// AttachedInUse lists the volumes; all says that no other may be in use.
	AttachedInUse() (used []state.InUse, all bool)
	ReconcilerStatesHasBeenSynced() bool
	MarkVolumesAsReportedInUse([]state.VolumeID)
	Settle(context.Context) error
	Changed() <-chan struct{}
}

// Driver is a registered driver, as its NodeGetInfo says.
type Driver struct {
	Name     state.DriverName
	NodeID   string
	Topology map[string]string
	// MaxVolumes is how many volumes it serves here; 0 and less mean no limit known.
	MaxVolumes int64
}

// Config is what a Reporter needs.
type Config struct {
	Core     *kubeclient.Core
	Storage  *kubeclient.Storage
	NodeName string
	Volumes  Volumes
	// Annotations are those that the CSINode is to have; an empty value is none.
	// Others of it are left as they are.
	Annotations map[string]string
	// Limit asks a registered driver how many volumes it serves here now
	// (NodeGetInfo); it is called by many goroutines, for a driver by one at a
	// time. Nil where none is to be asked.
	Limit func(context.Context, state.DriverName) (int64, error)
	// Period is how often that is to be asked, as the driver's CSIDriver says
	// (spec.nodeAllocatableUpdatePeriodSeconds); 0 is never.
	Period func(state.DriverName) time.Duration
	// Health returns the health of volumes and storage; nil where that is not written.
	Health func() Health
	// Alive is how the Node shows that this daemon runs; the zero value is not at all.
	Alive Alive
	// Logger may be nil.
	Logger *slog.Logger
}

// Reporter writes what this node has. See the package comment.
type Reporter struct {
	config Config
	logger *slog.Logger
	writer string // see WriterAnnotation
	claim  Claimant
	health chan struct{} // capacity 1: it may have changed

	mu sync.Mutex // guards what follows
	// node is this node's object as it was seen last, nil while there is none.
	node *corev1.Node
	// seen: it is known whether there is one, or that this is not to be known.
	seen bool
	// standing is how this daemon stands to the node's name; rival: another may have
	// volumes of this node mounted, too.
	standing nameState
	rival    bool
	// held is why nothing new is made here, "" where it is.
	held    string
	drivers map[state.DriverName]Driver
	// gone are drivers that went away since the daemon started.
	gone     map[state.DriverName]bool
	full     map[state.DriverName]bool // whose limits are to be asked for now
	sizes    map[Claim]int64           // that were not written yet
	failures map[Claim]ExpandFailure   // likewise
	events   []*corev1.Event           // that were not written yet, the oldest first
	changed  chan struct{}

	problems outage.Findings
}

// New returns a Reporter that writes nothing until Run.
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

// Node tells of this node's object, nil for none.
func (r *Reporter) Node(n *corev1.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.node, r.seen = n, true
	r.notify()
}

// NodeRefused tells that the identity may not read this node's object: nothing more is
// waited for.
func (r *Reporter) NodeRefused() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = true
	r.notify()
}

// Wake has Run look again: what Config.Period says may be another.
func (r *Reporter) Wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notify()
}

// DriverUp tells of a driver that registered, or that says other things now.
func (r *Reporter) DriverUp(d Driver) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drivers[d.Name] = d
	delete(r.gone, d.Name)
	r.notify()
}

// DriverDown tells that a driver took its registration back.
func (r *Reporter) DriverDown(name state.DriverName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.drivers, name)
	r.gone[name] = true
	r.notify()
}

// notify has Run look again; r.mu is held.
func (r *Reporter) notify() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// view is what there is to be written.
type view struct {
	node    *corev1.Node
	drivers map[state.DriverName]Driver
	gone    map[state.DriverName]bool
	rival   bool // another may have volumes of this node mounted, too
}

// view has no Node where its name is another's. Of the volumes that are mounted here
// (own) the Node is told even then: it is left to others otherwise.
func (r *Reporter) view(own bool) (view, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := view{r.node, maps.Clone(r.drivers), maps.Clone(r.gone), r.rival}
	if r.standing != holding && !(own && r.standing == deprived) {
		v.node = nil
	}
	return v, r.changed
}

// Run writes until ctx ends, which is no error, or until it is known that another
// daemon has the node's name (ErrNameTaken). It is to be called once.
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

// answerTime is how long one answer of the API server may take.
const answerTime = 30 * time.Second
