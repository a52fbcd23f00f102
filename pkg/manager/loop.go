package manager

import (
	"context"
	"log/slog"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// loop is all state of a Manager, owned by the goroutine of Run.
type loop struct {
	m   *Manager
	cfg *Config // never changed
	log *slog.Logger

	volumes map[state.VolumeID]*volume
	drivers map[state.DriverName]*driver
	pods    pods
	gates   gates
	journal journal
	atStart
	queues
	slots
	outbox
	// unrecorded is nil where the journal lost nothing.
	unrecorded *unrecorded
	workers    workers
	inFlight   int // goroutines of ours that will post an event
}

// pods is what the loop knows of pods.
type pods struct {
	listed   map[state.PodUID]state.PodWant // as the sources have them
	arrivals uint64                         // of wishes
	has      podVolumes                     // volumes by the pod that their records name
	asked    map[state.PodUID]*asked        // pods that left, and whose containers may live
}

// gates are the words of others that hold steps back.
type gates struct {
	unsynced set[string]         // sources that have not spoken: nothing is removed
	reported set[state.VolumeID] // volumes that the node's status reports as in use
	drain    Drain
	holds    string // why nothing new is made; "" for no such reason
}

// atStart is what a daemon finds and does when it starts.
type atStart struct {
	found    Found
	looking  int  // records that are to be compared with the kernel yet
	sameBoot bool // the journal was written in this boot of the node
}

// queues are the volumes that something is to be done about.
type queues struct {
	dirty   queue[state.VolumeID] // to be planned
	ahead   queue[state.VolumeID] // to be planned first: their call has just ended
	wakes   wakes                 // to be planned later
	intents []state.VolumeID      // in order, those with a queued intent, and some that have none any more
	// suspects are to be compared with the kernel again; their values wait for what
	// that finds.
	suspects map[state.VolumeID][]func(problem string)
}

// outbox is what the loop publishes and reports at the end of a round.
type outbox struct {
	taken       uint64                // events ever
	changed     queue[state.VolumeID] // to be published
	changedPods queue[state.PodUID]
	answers     []func()         // replies to send after the next publish
	gone        []state.VolumeID // for OnGone, after the next publish
	// unrecordedChanged: OnUnrecorded is to be called.
	unrecordedChanged bool
}

type set[K comparable] map[K]struct{}

func (s set[K]) has(k K) bool { _, ok := s[k]; return ok }

// driver is a driver that was up at least once, or that a volume names.
type driver struct {
	status  DriverStatus
	driver  Driver
	info    *DriverInfo // of driver, as it came up
	running plan.Running
	keys    set[state.VolumeID] // volumes that name it
	pace    plan.Pace
	// serving counts its volumes that have something here; entering those that are
	// begun in this round, which serving does not have yet.
	serving, entering int
	blocked           [2]blockedQueue // that wait to be made, and to be removed
	widening          bool            // running.First is to grow
}

// call is a call in flight, or a look, whose op's Kind is None.
type call struct {
	op    plan.Op
	since time.Time
	cured bool // something happened meanwhile that may cure its failure
	// progress says how far it is, for people; "" where the driver does not say.
	progress string
	ctx      *limited // its own; nil for a look
	of       *start   // nil for a look
	slow     bool     // it counts among plan.Running.Slow
}

func newLoop(m *Manager, loaded state.Loaded) *loop {
	l := &loop{
		m: m, cfg: &m.cfg, log: m.cfg.Logger,
		volumes: map[state.VolumeID]*volume{},
		drivers: map[state.DriverName]*driver{},
		pods:    pods{listed: map[state.PodUID]state.PodWant{}, has: podVolumes{}, asked: map[state.PodUID]*asked{}},
		gates:   gates{unsynced: set[string]{}, reported: set[state.VolumeID]{}},
		journal: journal{
			store: m.cfg.Store, log: m.cfg.Logger,
			durable: map[state.VolumeID]*state.Volume{}, unsaved: map[state.VolumeID]time.Time{},
		},
		queues: queues{
			dirty: newQueue[state.VolumeID](), ahead: newQueue[state.VolumeID](), suspects: map[state.VolumeID][]func(string){},
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

// run turns events into plans, plans into durable intents, and those into calls.
func (l *loop) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	calls, cancel := context.WithCancel(ctx)
	defer cancel()
	l.look(calls)
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
		if len(starts) == 0 { // what is written now are results, and who waits for one need not wait for the disk
			l.publish()
			l.answer()
		}
		starts = l.commit(ctx, starts, now)
		for _, s := range starts {
			l.begin(calls, s)
		}
		if len(starts) == 0 && len(l.journal.unsaved) == 0 { // nothing has happened for a while
			l.workers.stop()
		}
		l.publish()
		l.answer()
		l.reportGone()
		timer.Reset(l.nextWake(now))
	}
}

// takeEvents handles the posted events, and those that were posted while an event wrote
// to the journal, which may take long: the next plan rests on all of them.
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

// end waits for the calls in flight, whose context has ended, and leaves the
// journal knowing all. A call that does not heed its context is left behind:
// its record says already that its outcome is not known.
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
			l.journal.later(id)
		}
	}
	l.publish()
	l.answer()
	return l.journal.write(ctx, l.unsaved())
}

func (l *loop) nextWake(now time.Time) time.Duration {
	wait := time.Hour
	if at, ok := l.wakes.next(); ok {
		wait = min(wait, at.Sub(now))
	}
	if len(l.journal.unsaved) > 0 {
		wait = min(wait, l.journal.since.Add(lazyWrite).Sub(now))
	}
	return max(wait, 0)
}
