package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Times that only the daemon's own state waits for.
const (
	// callDeadline bounds every call of a driver. It is beyond the deadline of a
	// single RPC (2 minutes, as the kubelet's), which a driver's adapter sets.
	callDeadline = 150 * time.Second
	// callGrace is how much longer than its longest RPC a driver's call may take.
	callGrace = 30 * time.Second
	// lookDeadline bounds one look at the kernel, which takes microseconds unless something hangs.
	lookDeadline = 5 * time.Second
	// lookRetry is the pause after a look that failed: nothing tells when the next one will not.
	lookRetry = 30 * time.Second
	// lazyWrite is how long a call's result may wait for a durable write together
	// with others: long against a commit (0.4 ms measured), short for a person.
	lazyWrite = 50 * time.Millisecond
	// resultWait is how long a result may wait for that of the volume's next call:
	// one that hangs is not to keep from the journal what a pod has.
	resultWait = time.Second
	// journalRetry is the pause after a durable write failed.
	journalRetry = time.Second
	// endGrace is how long calls in flight may take to heed the end of Run.
	endGrace = 10 * time.Second
	// lookers bounds how many records are looked at at once at start-up.
	lookers = 256
)

// Config is what a Manager needs. Store and Kernel are required.
type Config struct {
	Store  Store
	Kernel Kernel
	// Sources names the sources of pods that have to speak before anything is
	// removed (rule 5). None means that removal waits for none.
	Sources []string
	// BootID identifies this boot of the node; another one than the journal's
	// means that no mount of it survived.
	BootID string
	// Attacher serves drivers whose DriverInfo.Attach is set; nil where there is none.
	Attacher Attacher
	// Containers is asked whether containers of a pod that left live; nil means that
	// the word of the pod's source is enough.
	Containers Containers
	// BeforeUnpublish ends what was made of a pod's mount for its containers
	// (subPaths), which the driver knows nothing of; the driver is called only
	// where it succeeds. nil where there is nothing such.
	BeforeUnpublish func(ctx context.Context, v state.Volume, pod state.PodUID) error
	// Unmount unmounts by a step what Unpublish for pod, or with no pod Unstage, is
	// about, before the driver is called. nil where there are normal unmounts only.
	Unmount func(ctx context.Context, v state.Volume, pod state.PodUID, step state.UnmountStep) error
	// Ladders say what is done about unmounts that keep failing; none for normal
	// unmounts only. They need Unmount.
	Ladders plan.Ladders
	// Within returns the context with which a call for a volume is made: ctx, and
	// what the call is counted for. It may be nil.
	Within func(ctx context.Context, v state.Volume) context.Context
	// BeforeExpand is called before a driver makes a volume larger; the driver's
	// call waits for it. nil where no room wants to know.
	BeforeExpand func(ctx context.Context, v state.Volume)
	// Reason says what a built-in kind's error is about. It may be nil.
	Reason func(err error) state.Reason
	// Stray counts the files at a target on which nothing is mounted. It may be nil.
	Stray func(path string) int
	// Dead returns why what is mounted of the volume at path is known to be dead, as a
	// FUSE file system whose server has ended; nil where that is not known. It may be nil.
	Dead func(ctx context.Context, v state.Volume, path string) error
	// InUseHandshake holds cluster-attached volumes until MarkVolumesAsReportedInUse names them.
	InUseHandshake bool
	// HoldAtLimit delays new volumes of a driver that already serves its maximum on
	// this node (DriverInfo.MaxVolumes). It is for nodes without a cluster; in a
	// cluster the scheduler counts.
	HoldAtLimit bool
	// Limits bounds calls in flight; zero means plan.DefaultLimits.
	Limits plan.Limits
	// OnExpanded is called for each volume that a driver made larger, and OnGone for
	// each that has nothing left on the host, after Volume shows that. They must not
	// block.
	OnExpanded func(state.Volume)
	OnGone     func(state.VolumeID)
	// Place says what a path below the root is for (state.Layout.Place). nil where nobody
	// calls MountsSeen: what is mounted without a record is not looked for then.
	Place func(path string) (state.Place, bool)
	// OnUnrecorded is called when the answer of Unrecorded changes. It must not block; nil
	// where no room wants to know.
	OnUnrecorded func()
	// OnCall is called for every driver call that ended, in the order of their ends. It
	// must not block. nil where no room wants to know.
	OnCall func(EndedCall)
	// Logger gets one line a step; nil means slog.Default.
	Logger *slog.Logger
}

// Manager makes volumes. Its methods may be called by any goroutine, before,
// during and after Run.
type Manager struct {
	cfg      Config
	snapshot *snapshot

	mu     sync.Mutex // guards events and posted
	events []func(*loop)
	posted uint64        // events ever; the first is what the journal says
	poke   chan struct{} // capacity 1: there are events
	ended  chan struct{} // closed when Run has returned
}

// New returns a Manager that does nothing until Run.
func New(cfg Config) (*Manager, error) {
	if cfg.Store == nil || cfg.Kernel == nil {
		return nil, errors.New("new manager: Store and Kernel are required")
	}
	if cfg.Limits == (plan.Limits{}) {
		cfg.Limits = plan.DefaultLimits()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return &Manager{
		cfg: cfg, snapshot: newSnapshot(), posted: 1,
		poke: make(chan struct{}, 1), ended: make(chan struct{}),
	}, nil
}

// Run owns all state until ctx ends, waits for the calls in flight, which ctx
// cancels, and writes what the journal does not know yet. It returns an error
// only if the journal cannot be read at the start or written at the end. It is
// to be called once.
func (m *Manager) Run(ctx context.Context) error {
	defer close(m.ended)
	loaded, err := m.cfg.Store.Load(ctx)
	if err != nil {
		return fmt.Errorf("load the journal: %w", err)
	}
	return newLoop(m, loaded).run(ctx)
}

// post hands an event to the loop; it never blocks.
func (m *Manager) post(e func(*loop)) {
	m.mu.Lock()
	m.events = append(m.events, e)
	m.posted++
	m.mu.Unlock()
	select {
	case m.poke <- struct{}{}:
	default:
	}
}

// Alive returns nil when the loop has come round once more. It is for a
// watchdog: a loop that is stuck does not let it return before ctx ends.
func (m *Manager) Alive(ctx context.Context) error {
	round := make(chan struct{})
	m.post(func(*loop) { close(round) })
	select {
	case <-round:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the manager's loop did not finish a round: %w", context.Cause(ctx))
	}
}

func (m *Manager) take() []func(*loop) {
	m.mu.Lock()
	defer m.mu.Unlock()
	events := m.events
	m.events = nil
	return events
}

// SetPod replaces what a pod wants.
func (m *Manager) SetPod(p state.PodWant) { m.post(func(l *loop) { l.setPod(p) }) }

// RemovePod says that no source lists the pod any more, which is its owner's
// word that its containers have ended (plan.Keep).
func (m *Manager) RemovePod(uid state.PodUID) { m.post(func(l *loop) { l.removePod(uid) }) }

// SourceSynced says that the named source has listed all its pods.
func (m *Manager) SourceSynced(name string) { m.post(func(l *loop) { l.sourceSynced(name) }) }

// DriverUp says that a driver can be called. It replaces an earlier one of the
// name; calls in flight go on with the earlier one.
func (m *Manager) DriverUp(info DriverInfo, d Driver) {
	m.post(func(l *loop) { l.driverUp(info, d) })
}

// DriverDown says that no call of the driver can be made; why is for people.
// Calls in flight are left to end as they may.
func (m *Manager) DriverDown(name state.DriverName, why string) {
	m.post(func(l *loop) { l.driverDown(name, why) })
}

// DriverLimit says how many volumes a driver serves on the node now, 0 for no
// limit known.
func (m *Manager) DriverLimit(name state.DriverName, volumes int64) {
	m.post(func(l *loop) {
		l.driver(name).status.MaxVolumes = volumes
		l.retryFull(name)
	})
}

// RetryNow ends every pause of a volume: something may have cured its failures.
func (m *Manager) RetryNow(id state.VolumeID) {
	m.post(func(l *loop) {
		l.volumes[id].change(plan.AskAgain)
		l.reset(id)
	})
}

// MarkVolumesAsReportedInUse replaces the list of volumes that the node's
// status is known to report as in use (facts of the kubelet: only then may an
// attachable volume be mounted). It matters only with Config.InUseHandshake.
func (m *Manager) MarkVolumesAsReportedInUse(ids []state.VolumeID) {
	ids = slices.Clone(ids)
	m.post(func(l *loop) { l.reportedInUse(ids) })
}
