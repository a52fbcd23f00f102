package manager

import (
	"context"
	"log/slog"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// loop is the state of a Manager. The goroutine of Run owns it.
type loop struct {
	m   *Manager
	cfg *Config // never changed
	log *slog.Logger

	volumes map[state.VolumeID]*volume
	drivers map[state.DriverName]*driver
	pods    pods
	gates   gates
	journal records
	atStart
	queues
	slots
	outbox
	unexplained
	workers  workers
	inFlight int // goroutines that will post an event to the loop
}

// unexplained are the mounts below the root that no record explains.
type unexplained struct {
	// unrecorded is nil unless the journal may have lost records or some cannot be read.
	unrecorded *unrecorded
	left       left
}

// pods is what the loop knows of pods.
type pods struct {
	listed   map[state.PodUID]state.PodWant // as the sources list them
	arrivals uint64                         // number of wishes that arrived
	volumes  volumesBy[state.PodUID]        // volumes by the pods that their records name
	queries  map[state.PodUID]*runtimeQuery // pods that left and may still have running containers
}

// gates are the conditions set by others that hold steps back.
type gates struct {
	unsynced   set[string]         // sources that have not listed their pods: nothing is removed
	reported   set[state.VolumeID] // volumes that the Node's status reports as in use
	drain      Drain
	holdReason string // why nothing new is mounted; "" if nothing is held
}

// atStart is the state of start-up.
type atStart struct {
	found    Found
	looking  int  // number of records still to be compared with the kernel
	sameBoot bool // the journal was written in this boot of the node
}

// queues are the volumes that the loop has to work on.
type queues struct {
	dirty   queue[state.VolumeID] // to be planned
	ahead   queue[state.VolumeID] // to be planned first, since their call has just ended
	wakes   wakes                 // to be planned later
	intents []state.VolumeID      // volumes with a queued intent, in order; some no longer have one
	// displaced wait for another volume to leave their path; staged are the raw block volumes by the
	// stage path of their records.
	displaced set[state.VolumeID]
	staged    volumesBy[string]
	// unpublishing are the former targets at which a call in flight unpublishes its volume again.
	unpublishing map[string]state.VolumeID
	// suspects are to be compared with the kernel again; the functions get the result.
	suspects map[state.VolumeID][]func(problem string)
}

// outbox is what the loop publishes and reports at the end of a round.
type outbox struct {
	taken       uint64                // number of events handled
	changed     queue[state.VolumeID] // volumes to publish
	changedPods queue[state.PodUID]   // pods to publish
	replies     []func()              // replies to send after the next publish
	gone        []state.VolumeID      // volumes to report to OnGone after the next publish
	// unrecordedChanged: OnUnrecorded has to be called.
	unrecordedChanged bool
}

type set[K comparable] map[K]struct{}

func (s set[K]) has(k K) bool { _, ok := s[k]; return ok }

// driver is a driver that was up at least once, or that a volume names.
type driver struct {
	status  DriverStatus
	driver  Driver
	info    *DriverInfo // given to DriverUp with driver; only its name before
	apart   *apart      // the driver's controller, if that has an endpoint of its own
	running plan.Running
	keys    set[state.VolumeID] // volumes that name it
	pace    plan.Pace
	// serving counts its volumes that have something here. entering counts those that are
	// begun in this round and not yet counted by serving.
	serving, entering int
	blocked           [2]blockedQueue // volumes that wait for a slot: to make something, to remove
	widening          bool            // a timer that raises running.First is running
}

// call is a call in flight, or a look at the kernel; the Kind of a look's op is None.
type call struct {
	op    plan.Op
	since time.Time
	cured bool // an event that may cure the call's failure came while it was in flight
	// progress says how far the call is, for people; "" if the driver does not say.
	progress string
	ctx      *callContext // the call's context; nil for a look
	start    *start       // nil for a look
	slow     bool         // plan.Running.Slow counts it
}

func newLoop(m *Manager, loaded state.Loaded) *loop {
	l := &loop{
		m: m, cfg: &m.cfg, log: m.cfg.Logger,
		volumes: map[state.VolumeID]*volume{},
		drivers: map[state.DriverName]*driver{},
		pods: pods{
			listed: map[state.PodUID]state.PodWant{}, volumes: volumesBy[state.PodUID]{},
			queries: map[state.PodUID]*runtimeQuery{},
		},
		gates: gates{unsynced: set[string]{}, reported: set[state.VolumeID]{}},
		journal: records{
			store: m.cfg.Store, log: m.cfg.Logger,
			durable: map[state.VolumeID]*state.Volume{}, unsaved: map[state.VolumeID]time.Time{},
		},
		queues: queues{
			dirty: newQueue[state.VolumeID](), ahead: newQueue[state.VolumeID](), displaced: set[state.VolumeID]{},
			staged: volumesBy[string]{}, unpublishing: map[string]state.VolumeID{},
			suspects: map[state.VolumeID][]func(string){},
		},
		outbox: outbox{taken: 1, changed: newQueue[state.VolumeID](), changedPods: newQueue[state.PodUID]()},
	}
	for _, s := range m.cfg.Sources {
		l.gates.unsynced[s] = struct{}{}
	}
	for id, why := range loaded.Quarantined {
		l.log.Error("record cannot be read; the volume counts as in use and is not touched", "volume", id, "err", why)
		l.row(id).quarantined = why
		l.changed.push(id)
	}
	l.recover(loaded)
	return l
}

// run turns events into plans, plans into durable intents, and intents into calls.
func (l *loop) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	calls, cancel := context.WithCancel(ctx)
	defer cancel()
	l.lookAtAll(calls)
	for {
		select {
		case <-ctx.Done():
			return l.end(context.WithoutCancel(ctx))
		case <-l.m.poke:
		case <-timer.C:
		}
		l.takeEvents()
		l.lookAtSuspects(calls)
		now := time.Now()
		for _, id := range l.wakes.due(now) {
			l.dirty.push(id)
		}
		starts := l.plan(now)
		if len(starts) == 0 { // only results are written now: readers need not wait for the disk
			l.publish()
			l.sendReplies()
		}
		starts = l.commit(ctx, starts, now)
		for _, s := range starts {
			l.begin(calls, s)
		}
		if len(starts) == 0 && len(l.journal.unsaved) == 0 { // the manager is idle
			l.workers.stop()
		}
		l.publish()
		l.sendReplies()
		l.reportGone()
		timer.Reset(l.nextWake(now))
	}
}

// takeEvents handles all posted events. A handler may write to the journal, which can take
// long; events that were posted meanwhile are handled too, so that the next plan is based
// on all of them.
func (l *loop) takeEvents() {
	for {
		writes := l.journal.writes
		events := l.m.take()
		for _, event := range events {
			event(l)
		}
		l.taken += uint64(len(events))
		if l.journal.writes == writes {
			return
		}
	}
}

// end waits for the calls in flight, whose context has ended, and writes all unsaved
// records. It abandons a call that ignores its context: the call's record already says
// that its outcome is unknown.
func (l *loop) end(ctx context.Context) error {
	defer l.workers.stop()
	grace := time.NewTimer(endGrace)
	defer grace.Stop()
	for l.inFlight > 0 {
		select {
		case <-l.m.poke:
		case <-grace.C:
			l.log.Warn("calls in flight did not end when cancelled and are left behind", "calls", l.inFlight)
			l.inFlight = 0
		}
		l.takeEvents()
	}
	for id, v := range l.volumes {
		if v.announced {
			l.journal.markUnsaved(id)
		}
	}
	l.publish()
	l.sendReplies()
	return l.journal.write(ctx, l.unsaved())
}

// clockCheck is how often the loop compares what is due later with the wall clock. Its timer does not notice
// that an operator or NTP set that clock, or that the machine slept: a token would be renewed after its end.
const clockCheck = time.Minute

// nextWake returns how long the loop may sleep if no event comes.
func (l *loop) nextWake(now time.Time) time.Duration {
	wait := time.Hour
	if at, ok := l.wakes.next(); ok {
		wait = min(clockCheck, at.Sub(now))
	}
	if len(l.journal.unsaved) > 0 {
		wait = min(wait, l.journal.since.Add(lazyWrite).Sub(now))
	}
	return max(wait, 0)
}
