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
	cfg Config
	log *slog.Logger

	// Records are never changed, only replaced: those of the two may be the same.
	mem         map[state.VolumeID]*state.Volume // what is known
	durable     map[state.VolumeID]*state.Volume // what the journal says
	lazy        map[state.VolumeID]time.Time     // where the two differ, and since when
	lazySince   time.Time
	quarantined map[state.VolumeID]string
	journalErr  error // of the last durable write

	pods     byRef[state.PodUID, state.PodWant]
	wants    map[state.VolumeID]map[state.PodUID]wanted
	together byRef[state.VolumeID, state.Want] // all of one's wants, as put together for its last plan
	arrivals uint64
	has      podVolumes              // pods named by records
	asked    map[state.PodUID]*asked // pods that left, and whose containers may live
	reported set[state.VolumeID]
	unsynced set[string]
	looking  int                 // records still to be compared with the kernel at start-up
	suspects set[state.VolumeID] // to be compared with the kernel again
	unseen   map[state.VolumeID]set[state.PodUID]
	// unrecorded is nil where the journal lost nothing.
	unrecorded *unrecorded
	// tellUnrecorded: OnUnrecorded is to be told.
	tellUnrecorded bool
	drain          Drain
	holds          string // why nothing new is made; "" for no such reason
	// orders are removals that an operator asked for with a step.
	orders map[state.VolumeID]plan.Op
	// verifying are who asked for a volume to be looked at; drift is what looks
	// found of mounts that no call would mend, by path.
	verifying map[state.VolumeID][]func(problem string)
	drift     map[state.VolumeID]map[string]string
	dead      map[state.VolumeID]deadMount         // whose server was found to have ended
	erred     map[state.VolumeID]map[string]string // of file systems that take no writes any more

	drivers map[state.DriverName]*driver
	busy    map[state.VolumeID]call
	running plan.Running
	workers workers

	dirty     queue[state.VolumeID]         // to be planned
	ahead     queue[state.VolumeID]         // to be planned first: their call has just ended
	isBlocked map[state.VolumeID]blockedKey // planned, and waiting for a slot of their driver
	blocks    uint64                        // counts those that ever waited
	offers    map[state.VolumeID]*announcement
	offered   []state.VolumeID                 // in order, those of offers and some that are none any more
	early     set[state.VolumeID]              // of which the journal says more than mem: announced, and not begun
	held      byRef[state.VolumeID, heldSince] // planned, and waiting for something else
	wakes     wakes                            // to be planned later
	staged    map[state.VolumeID]time.Time     // when what was staged was seen, until the volume's next call
	inFlight  int                              // goroutines of ours that will post an event

	taken       uint64                // events ever
	writes      uint64                // of the journal, tried
	changed     queue[state.VolumeID] // to be published
	changedPods queue[state.PodUID]
	gone        []state.VolumeID // OnGone is to be told of, once it shows
	answers     []func()         // to who asked, once what they say shows
	sameBoot    bool             // the journal was written in this boot of the node
	found       Found
	served      map[state.DriverName]int // volumes of which something is here
}

type set[K comparable] map[K]struct{}

func (s set[K]) has(k K) bool { _, ok := s[k]; return ok }

// wanted is one pod's wish for a volume, as it is in pods, and when it was told.
type wanted struct {
	*state.VolumeWant
	arrival uint64
}

// driver is a driver that was up at least once, or that a volume names.
type driver struct {
	status  DriverStatus
	driver  Driver
	info    *DriverInfo // of driver, as it came up
	running plan.Running
	keys    set[state.VolumeID] // volumes that name it
	pace    plan.Pace
	// entering counts the volumes that are begun in this round, which served does
	// not know yet.
	entering int
	blocked  [2]blockedQueue // that wait to be made, and to be removed
	widening bool            // running.First is to grow
}

// call is a call in flight.
type call struct {
	op    plan.Op
	since time.Time
	cured bool // something happened meanwhile that may cure its failure
	// progress says how far it is, for people; "" where nobody says so.
	progress string
	ctx      *limited // its own; nil for a look
	of       *start   // nil for a look
	slow     bool     // it counts among plan.Running.Slow
}

func newLoop(m *Manager, loaded state.Loaded) *loop {
	l := &loop{
		m: m, cfg: m.cfg, log: m.cfg.Logger,
		mem:         map[state.VolumeID]*state.Volume{},
		durable:     map[state.VolumeID]*state.Volume{},
		lazy:        map[state.VolumeID]time.Time{},
		quarantined: loaded.Quarantined,
		pods:        byRef[state.PodUID, state.PodWant]{},
		wants:       map[state.VolumeID]map[state.PodUID]wanted{},
		together:    byRef[state.VolumeID, state.Want]{},
		has:         podVolumes{},
		asked:       map[state.PodUID]*asked{},
		reported:    set[state.VolumeID]{},
		unsynced:    set[string]{},
		drivers:     map[state.DriverName]*driver{},
		busy:        map[state.VolumeID]call{},
		dirty:       queue[state.VolumeID]{in: set[state.VolumeID]{}},
		ahead:       queue[state.VolumeID]{in: set[state.VolumeID]{}},
		isBlocked:   map[state.VolumeID]blockedKey{},
		offers:      map[state.VolumeID]*announcement{},
		early:       set[state.VolumeID]{},
		staged:      map[state.VolumeID]time.Time{},
		suspects:    set[state.VolumeID]{},
		unseen:      map[state.VolumeID]set[state.PodUID]{},
		verifying:   map[state.VolumeID][]func(string){},
		drift:       map[state.VolumeID]map[string]string{},
		dead:        map[state.VolumeID]deadMount{},
		erred:       map[state.VolumeID]map[string]string{},
		orders:      map[state.VolumeID]plan.Op{},
		held:        byRef[state.VolumeID, heldSince]{},
		changed:     queue[state.VolumeID]{in: set[state.VolumeID]{}},
		changedPods: queue[state.PodUID]{in: set[state.PodUID]{}},
		served:      map[state.DriverName]int{},
		taken:       1,
	}
	for _, s := range m.cfg.Sources {
		l.unsynced[s] = struct{}{}
	}
	for id, why := range loaded.Quarantined {
		l.log.Error("record cannot be read; the volume counts as in use and is not touched", "volume", id, "err", why)
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
		if len(starts) == 0 { // what is written now are results, and whoever waits for one need not wait for the disk
			l.publish()
			l.answer()
		}
		starts = l.commit(ctx, starts, now)
		for _, s := range starts {
			l.start(calls, s)
		}
		if len(starts) == 0 && len(l.lazy) == 0 { // nothing has happened for a while
			l.workers.rest()
		}
		l.publish()
		l.answer()
		l.tellGone()
		timer.Reset(l.nextWake(now))
	}
}

// takeEvents takes in what was told, also while an event wrote to the journal,
// which may take long: what is planned next rests on all of it.
func (l *loop) takeEvents() {
	for {
		writes := l.writes
		events := l.m.take()
		for _, event := range events {
			event(l)
		}
		l.taken += uint64(len(events))
		if l.writes == writes {
			return
		}
	}
}

// end waits for the calls in flight, whose context has ended, and leaves the
// journal knowing all. A call that does not heed its context is left behind:
// its record says already that its outcome is not known.
func (l *loop) end(ctx context.Context) error {
	defer l.workers.rest()
	grace := time.NewTimer(endGrace)
	defer grace.Stop()
	for l.inFlight > 0 {
		select {
		case <-l.m.poke:
		case <-grace.C:
			l.log.Warn("calls in flight do not heed their end and are left behind", "calls", l.inFlight)
			l.inFlight = 0
		}
		l.takeEvents()
	}
	for id := range l.early {
		l.later(id)
	}
	batch := map[state.VolumeID]*state.Volume{}
	l.addLazy(batch)
	l.publish()
	l.answer()
	return l.write(ctx, batch)
}

func (l *loop) nextWake(now time.Time) time.Duration {
	wait := time.Hour
	if at, ok := l.wakes.next(); ok {
		wait = min(wait, at.Sub(now))
	}
	if len(l.lazy) > 0 {
		wait = min(wait, l.lazySince.Add(lazyWrite).Sub(now))
	}
	return max(wait, 0)
}
