package manager

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// loop is all state of a Manager, owned by the goroutine of Run.
type loop struct {
	m   *Manager
	cfg Config
	log *slog.Logger

	mem         map[state.VolumeID]state.Volume // what is known
	durable     map[state.VolumeID]state.Volume // what the journal says
	lazy        set[state.VolumeID]             // where the two differ
	lazySince   time.Time
	quarantined map[state.VolumeID]string
	journalErr  error // of the last durable write

	pods     map[state.PodUID]state.PodWant
	wants    map[state.VolumeID]map[state.PodUID]wanted
	arrivals uint64
	has      map[state.PodUID]set[state.VolumeID] // pods named by records
	asked    map[state.PodUID]*asked              // pods that left, and whose containers may live
	reported set[state.VolumeID]
	unsynced set[string]
	looking  int                 // records still to be compared with the kernel at start-up
	suspects set[state.VolumeID] // to be compared with the kernel again
	unseen   map[state.VolumeID]set[state.PodUID]
	drain    Drain
	// verifying are who asked for a volume to be looked at; drift is what looks
	// found of mounts that no call would mend, by path.
	verifying map[state.VolumeID][]func(problem string)
	drift     map[state.VolumeID]map[string]string

	drivers map[state.DriverName]*driver
	busy    map[state.VolumeID]call
	running plan.Running

	dirty     queue                         // to be planned
	ahead     queue                         // to be planned first: their call has just ended
	isBlocked map[state.VolumeID]blockedKey // planned, and waiting for a slot of their driver
	blocks    uint64                        // counts those that ever waited
	held      map[state.VolumeID]heldSince  // planned, and waiting for something else
	wakes     wakes                         // to be planned later
	inFlight  int                           // goroutines of ours that will post an event

	taken       uint64              // events ever
	changed     set[state.VolumeID] // to be published
	changedPods set[state.PodUID]
	gone        []state.VolumeID // OnGone is to be told of, once it shows
	sameBoot    bool             // the journal was written in this boot of the node
	found       Found
	served      map[state.DriverName]int // volumes of which something is here
}

type set[K comparable] map[K]struct{}

func (s set[K]) has(k K) bool { _, ok := s[k]; return ok }

// wanted is one pod's wish for a volume and when it was told.
type wanted struct {
	state.VolumeWant
	arrival uint64
}

// driver is a driver that was up at least once, or that a volume names.
type driver struct {
	status  DriverStatus
	driver  Driver
	running plan.Running
	keys    set[state.VolumeID] // volumes that name it
	pace    plan.Pace
	// entering counts the volumes that are begun in this round, which served does
	// not know yet.
	entering int
	blocked  [2]blockedQueue // that wait to be made, and to be removed
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
		mem:         map[state.VolumeID]state.Volume{},
		durable:     map[state.VolumeID]state.Volume{},
		lazy:        set[state.VolumeID]{},
		quarantined: loaded.Quarantined,
		pods:        map[state.PodUID]state.PodWant{},
		wants:       map[state.VolumeID]map[state.PodUID]wanted{},
		has:         map[state.PodUID]set[state.VolumeID]{},
		asked:       map[state.PodUID]*asked{},
		reported:    set[state.VolumeID]{},
		unsynced:    set[string]{},
		drivers:     map[state.DriverName]*driver{},
		busy:        map[state.VolumeID]call{},
		dirty:       queue{in: set[state.VolumeID]{}},
		ahead:       queue{in: set[state.VolumeID]{}},
		isBlocked:   map[state.VolumeID]blockedKey{},
		suspects:    set[state.VolumeID]{},
		unseen:      map[state.VolumeID]set[state.PodUID]{},
		verifying:   map[state.VolumeID][]func(string){},
		drift:       map[state.VolumeID]map[string]string{},
		held:        map[state.VolumeID]heldSince{},
		changed:     set[state.VolumeID]{},
		changedPods: set[state.PodUID]{},
		served:      map[state.DriverName]int{},
		taken:       1,
	}
	for _, s := range m.cfg.Sources {
		l.unsynced[s] = struct{}{}
	}
	for id, why := range loaded.Quarantined {
		l.log.Error("record cannot be read; the volume counts as in use and is not touched", "volume", id, "err", why)
		l.changed[id] = struct{}{}
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
		starts = l.commit(ctx, starts, now)
		for _, s := range starts {
			l.start(calls, s)
		}
		l.publish()
		l.tellGone()
		timer.Reset(l.nextWake(now))
	}
}

func (l *loop) takeEvents() {
	events := l.m.take()
	for _, event := range events {
		event(l)
	}
	l.taken += uint64(len(events))
}

// end waits for the calls in flight, whose context has ended, and leaves the
// journal knowing all. A call that does not heed its context is left behind:
// its record says already that its outcome is not known.
func (l *loop) end(ctx context.Context) error {
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
	l.lazySince = time.Time{}
	batch := map[state.VolumeID]*state.Volume{}
	l.addLazy(batch)
	l.publish()
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

// start is a call to be made once its intent is durable.
type start struct {
	id     state.VolumeID
	op     plan.Op
	begun  state.Volume
	intent *state.Volume // nil where the journal says enough already
	driver *driver
}

// plan decides about every dirty volume and takes slots for what may begin:
// first for volumes that go on, so that one begun is soon done, then for those
// that wait for a slot, then for the rest. So no arrival overtakes who waits.
func (l *loop) plan(now time.Time) []*start {
	for _, d := range l.drivers {
		d.entering = 0
	}
	rest := l.dirty
	l.dirty, l.ahead = l.ahead, queue{in: set[state.VolumeID]{}}
	starts := l.planDirty(nil, now)
	l.dirty = rest
	return l.planDirty(starts, now)
}

// planDirty plans what is dirty, and then those that wait for a slot, for as
// long as there is one: it may have been meant for one that needs it no longer.
func (l *loop) planDirty(starts []*start, now time.Time) []*start {
	for {
		id, ok := l.dirty.pop()
		if !ok {
			l.unblock()
			if id, ok = l.dirty.pop(); !ok {
				return starts
			}
		}
		if s, ok := l.planOne(id, now); ok {
			starts = append(starts, s)
		}
	}
}

func (l *loop) planOne(id state.VolumeID, now time.Time) (*start, bool) {
	l.changed[id] = struct{}{}
	if _, busy := l.busy[id]; busy || l.quarantined[id] != "" {
		return nil, false // planned again when the call ends
	}
	v, known := l.mem[id]
	w := l.want(id)
	if !known {
		if len(w.Pods) == 0 {
			l.forget(id)
			l.holdEmptied(id, now)
			return nil, false
		}
		v = state.Volume{ID: id, Spec: w.Spec}
	}
	d := l.driverOf(v, w)
	f := l.facts(v, w, d)
	if known {
		v = l.resize(v, w, f)
	}
	op, held := plan.Next(w, v, f, now)
	if op.Kind == plan.None {
		l.hold(id, held, now)
		l.wakes.set(id, held.Until)
		if known && v.Clear() {
			l.drop(id)
			l.holdEmptied(id, now)
		}
		return nil, false
	}
	if !l.cfg.Limits.Admit(l.running, d.running, op.Kind) {
		l.block(id, d, op.Kind)
		l.hold(id, plan.Held{Step: op.Kind, Pod: op.Pod, Reason: "waiting for one of the driver's or the node's calls in flight to end"}, now)
		return nil, false
	}
	delete(l.held, id)
	if v.Clear() {
		d.entering++
	}
	s := &start{id: id, op: op, begun: plan.Begin(v, op, w, f), driver: d}
	if !plan.Covers(l.durable[id], s.begun, op) {
		intent := plan.Intent(v, op, w, f)
		s.intent = &intent
		if op.Kind.Removes() {
			s.begun.Mounts = intent.Mounts // a pod that comes back must not be told that it has what the journal says is leaving
		}
	}
	l.count(d, op, +1)
	l.busy[id] = call{op: op, since: now}
	return s, true
}

// resize takes over what is known of the volume's size without a call.
func (l *loop) resize(v state.Volume, w state.Want, f plan.Facts) state.Volume {
	now, changed := plan.Resize(v, w, f)
	if !changed {
		return v
	}
	l.setRecord(now)
	if now.SizeBytes != v.SizeBytes && l.cfg.OnExpanded != nil {
		l.cfg.OnExpanded(now)
	}
	return now
}

// heldSince is why a volume waits and since when it does for this reason.
type heldSince struct {
	plan.Held
	since time.Time
}

func (l *loop) hold(id state.VolumeID, h plan.Held, now time.Time) {
	if h.Reason == "" {
		delete(l.held, id)
		return
	}
	was := l.held[id]
	since := was.since
	if was.Step != h.Step || was.Pod != h.Pod || was.Reason != h.Reason {
		since = now
	}
	l.held[id] = heldSince{h, since}
}

// wished is what all pods together want of a volume. Where they differ about the
// volume itself, the latest word holds.
func (l *loop) wished(id state.VolumeID) state.Want {
	var w state.Want
	var latest, sized uint64
	for uid, vw := range l.wants[id] {
		if w.Pods == nil {
			w.Pods = make(map[state.PodUID]state.WantMount, len(l.wants[id]))
		}
		w.Pods[uid] = state.WantMount{MountSpec: vw.Mount, Revision: vw.Revision}
		if vw.arrival >= latest {
			latest = vw.arrival
			w.Spec, w.Hold = vw.Spec, vw.Hold
		}
		if vw.SizeBytes != 0 && vw.arrival >= sized { // who only reads has no opinion
			sized = vw.arrival
			w.Topology = vw.Topology
			w.SizeBytes, w.HaveBytes, w.Grown, w.NoGrow = vw.SizeBytes, vw.HaveBytes, vw.Grown, vw.NoGrow
		}
	}
	if l.cfg.InUseHandshake && w.Hold == "" && len(w.Pods) > 0 && !w.Spec.Builtin && !w.Spec.Ephemeral && !w.Spec.NoAttach && !l.reported.has(id) {
		w.Hold = "waiting for the node's status to report the volume as in use"
	}
	return w
}

// facts gathers what the plan has to know besides wish and record.
func (l *loop) facts(v state.Volume, w state.Want, d *driver) plan.Facts {
	f := plan.Facts{Synced: len(l.unsynced) == 0 || l.drain == DrainEmpty, Driver: plan.DriverFacts{
		Up: d.status.Up, Why: d.status.Problem, Full: cmp.Or(plan.OutOfReach(w.Topology, d.status.Topology), l.full(d)),
		Attach: d.status.Attach && l.cfg.Attacher != nil, Stage: d.status.Stage, Expand: d.status.Expand, MountGroup: d.status.MountGroup,
	}}
	keep := func(uid state.PodUID, names []string) {
		why := ""
		if _, wants := w.Pods[uid]; !wants {
			why = plan.Keep(l.podFacts(uid, names))
		} else if l.unseen[v.ID].has(uid) {
			why = reasonUnseen
		}
		if why != "" {
			if f.Keep == nil {
				f.Keep = map[state.PodUID]string{}
			}
			f.Keep[uid] = why
		}
	}
	for _, uid := range v.For {
		keep(uid, nil)
	}
	for uid, m := range v.Mounts {
		keep(uid, m.Names)
	}
	return f
}

func (l *loop) podFacts(uid state.PodUID, names []string) plan.PodFacts {
	p, listed := l.pods[uid]
	facts := plan.PodFacts{Listed: listed, Stopped: p.Stopped || l.drain == DrainEmpty}
	if l.drain != DrainEmpty && (!listed || p.Stopped) {
		facts.Living = l.living(uid)
	}
	for _, vw := range p.Volumes {
		shares := names == nil || slices.ContainsFunc(vw.Names, func(n string) bool { return slices.Contains(names, n) })
		if vw.Problem != "" && shares {
			facts.Unresolved = vw.Problem
			break
		}
	}
	return facts
}

// driverOf returns the driver of a volume, which need not have been up ever.
func (l *loop) driverOf(v state.Volume, w state.Want) *driver {
	name := v.Spec.Driver
	if name == "" {
		name = w.Spec.Driver
	}
	d := l.driver(name)
	d.keys[v.ID] = struct{}{}
	return d
}

func neverUp(name state.DriverName) string { return "driver " + string(name) + " has not registered" }

func (l *loop) driver(name state.DriverName) *driver {
	d := l.drivers[name]
	if d == nil {
		d = &driver{keys: set[state.VolumeID]{}, status: DriverStatus{
			DriverInfo: DriverInfo{Name: name}, Problem: neverUp(name),
		}}
		l.drivers[name] = d
	}
	return d
}
