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

// The manager's own deadlines, pauses and bounds.
const (
	// callDeadline bounds every call of a driver. It is longer than the deadline of a
	// single RPC (2 minutes, like the kubelet's), which the driver's adapter sets.
	callDeadline = 150 * time.Second
	// callGrace is how much longer than its longest RPC a driver's call may take.
	callGrace = 30 * time.Second
	// lookDeadline bounds one look at the kernel, which takes microseconds unless something hangs.
	lookDeadline = 5 * time.Second
	// lookRetry is the pause after a look that failed, since no event says when it will succeed.
	lookRetry = 30 * time.Second
	// lazyWrite is how long a call's result may wait to be written together with others.
	// It is long compared with a commit (0.4 ms measured) and short for a person.
	lazyWrite = 50 * time.Millisecond
	// resultWait is how long a result may wait to be written together with that of the
	// volume's next call, which may hang.
	resultWait = time.Second
	// journalRetry is the pause after a durable write has failed.
	journalRetry = time.Second
	// endGrace is how long calls in flight may take to return after Run was cancelled.
	endGrace = 10 * time.Second
	// lookers bounds how many records are compared with the kernel at once.
	lookers = 256
)

// Config is what a Manager needs. Store and Kernel are required.
type Config struct {
	Store  Store
	Kernel Kernel
	// Sources names the sources that must have listed their pods before anything is
	// removed (rule 5). If it is empty, removal does not wait.
	Sources []string
	// BootID identifies this boot of the node. If it differs from the journal's, no
	// recorded mount has survived.
	BootID string
	// Attacher serves drivers whose DriverInfo.Attach is set; nil if csi-volmgr attaches nothing.
	Attacher Attacher
	// Containers is asked whether a pod that left still has running containers. If it is
	// nil, the word of the pod's source is enough.
	Containers Containers
	// BeforeUnpublish removes what was made from a pod's mount for its containers
	// (subPaths), which the driver does not know of. If it fails, the driver is not
	// called. It may be nil.
	BeforeUnpublish func(ctx context.Context, v state.Volume, pod state.PodUID) error
	// Unmount unmounts pod's mount by a step before Unpublish is called, or, without a
	// pod, the stage before Unstage. If it is nil there are only normal unmounts.
	Unmount func(ctx context.Context, v state.Volume, pod state.PodUID, step state.UnmountStep) error
	// Ladders list the steps against unmounts that keep failing. They need Unmount.
	Ladders plan.Ladders
	// Within returns the context for a call about a volume. It derives from ctx and says
	// for whom the call counts. It may be nil.
	Within func(ctx context.Context, v state.Volume) context.Context
	// BeforeExpand is called before a driver expands a volume; the driver's call waits
	// for it. It may be nil.
	BeforeExpand func(ctx context.Context, v state.Volume)
	// Reason returns the reason code of a built-in kind's error. It may be nil.
	Reason func(err error) state.Reason
	// Stray counts the files at a target on which nothing is mounted. It may be nil.
	Stray func(path string) int
	// Dead returns an error if the volume's mount at path is known to be dead, for example a
	// FUSE file system whose server has ended. The func may be nil.
	Dead func(ctx context.Context, v state.Volume, path string) error
	// InUseHandshake holds cluster-attached volumes until MarkVolumesAsReportedInUse names them.
	InUseHandshake bool
	// HoldAtLimit delays new volumes of a driver that already serves its maximum on
	// this node (DriverInfo.MaxVolumes). It is for nodes without a cluster; in a
	// cluster the scheduler counts.
	HoldAtLimit bool
	// Limits bounds the calls in flight; zero means plan.DefaultLimits.
	Limits plan.Limits
	// OnExpanded is called for each volume that a driver has expanded. OnGone is called
	// for each volume that has nothing left on the host, after [Manager.Volume] shows
	// that. They must not block, and may be nil.
	OnExpanded func(state.Volume)
	OnGone     func(state.VolumeID)
	// Place says what a path below the root is for (state.Layout.Place). If it is nil,
	// mounts without a record are not looked for; then MountsSeen need not be called.
	Place func(path string) (state.Place, bool)
	// OnUnrecorded is called when the result of [Manager.Unrecorded] changes, or that of
	// [Manager.UsedBy] because of forgotten records. It must not block, and may be nil.
	OnUnrecorded func()
	// OnCall is called for every driver call that has ended, in the order in which they
	// end. It must not block, and may be nil.
	OnCall func(EndedCall)
	// Logger gets one line per step; nil means slog.Default.
	Logger *slog.Logger
}

// Manager is the VolumeManager. Its methods may be called by any goroutine, before,
// during and after Run.
type Manager struct {
	cfg      Config
	snapshot *snapshot

	mu     sync.Mutex // guards events and posted
	events []func(*loop)
	posted uint64        // number of events ever; loading the journal counts as the first
	poke   chan struct{} // capacity 1; has a value if there are events
	ended  chan struct{} // closed when Run returns
}

// New returns a Manager that does nothing until Run is called.
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

// Run owns all state until ctx ends. Then it waits for the calls in flight, which
// ctx cancels, and writes the records that the journal does not have yet. It returns
// an error only if the journal cannot be read at the start or written at the end. It
// must be called only once.
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

// do runs f on the loop and returns its error, once the snapshot shows what f has changed.
func (m *Manager) do(ctx context.Context, f func(*loop) error) error {
	answer := make(chan error, 1)
	m.post(func(l *loop) {
		err := f(l)
		l.replies = append(l.replies, func() { answer <- err })
	})
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the outcome is not known yet: %w", context.Cause(ctx))
	case <-m.ended:
		return ErrEnded
	}
}

// Alive returns nil once the loop has handled another event. It is for a watchdog: if the
// loop is stuck, it returns an error when ctx ends.
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

// take returns the posted events and removes them.
func (m *Manager) take() []func(*loop) {
	m.mu.Lock()
	defer m.mu.Unlock()
	events := m.events
	m.events = nil
	return events
}

// SetPod replaces what a pod wants.
func (m *Manager) SetPod(p state.PodWant) { m.post(func(l *loop) { l.setPod(p) }) }

// RemovePod records that no source lists the pod any longer. By removing it, its owner
// states that its containers have ended (plan.Keep).
func (m *Manager) RemovePod(uid state.PodUID) { m.post(func(l *loop) { l.removePod(uid) }) }

// SourceSynced records that the named source has listed all its pods.
func (m *Manager) SourceSynced(name string) { m.post(func(l *loop) { l.sourceSynced(name) }) }

// DriverUp records that a driver can be called. It replaces an earlier driver of that
// name; calls in flight stay with the earlier one.
func (m *Manager) DriverUp(info DriverInfo, d Driver) {
	m.post(func(l *loop) { l.driverUp(info, d) })
}

// DriverDown records that the driver cannot be called; why is for people. Calls in
// flight are not cancelled.
func (m *Manager) DriverDown(name state.DriverName, why string) {
	m.post(func(l *loop) { l.driverDown(name, why) })
}

// DriverAttaches records that the driver's Controller service has an endpoint of its own:
// whether it attaches volumes, and why it cannot be called, "" if it can. A nil why means
// that it has none of its own any longer, from the next DriverUp on. Until the controller has
// answered once, attaches has to be true, so that no volume is staged without its attachment.
func (m *Manager) DriverAttaches(name state.DriverName, attaches bool, why *string) {
	m.post(func(l *loop) { l.driverAttaches(name, attaches, why) })
}

// DriverLimit sets how many volumes a driver can serve on the node; 0 means no known limit.
func (m *Manager) DriverLimit(name state.DriverName, volumes int64) {
	m.post(func(l *loop) {
		l.driver(name).status.MaxVolumes = volumes
		l.planBlockedByLimit(name)
	})
}

// RetryNow ends every pause of a volume, because its failures may have been cured.
func (m *Manager) RetryNow(id state.VolumeID) {
	m.post(func(l *loop) {
		l.volumes[id].change(plan.RetryExpand)
		l.reset(id)
	})
}

// MarkVolumesAsReportedInUse replaces the set of volumes that the Node's status is known
// to report as in use: as with the kubelet, only these attachable volumes may be mounted.
// It matters only with Config.InUseHandshake.
func (m *Manager) MarkVolumesAsReportedInUse(ids []state.VolumeID) {
	ids = slices.Clone(ids)
	m.post(func(l *loop) { l.reportedInUse(ids) })
}
