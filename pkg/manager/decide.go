package manager

import (
	"cmp"
	"slices"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// start is a call to be made once its intent is durable.
type start struct {
	id            state.VolumeID
	op            plan.Op
	begun         state.Volume
	intent        *state.Volume // nil if the journal already covers the call
	driver        *driver
	callsInFlight int // number of calls of the driver in flight, including this one
	// again are the pods whose former targets are unpublished again before the call.
	again []state.PodUID
}

// plan plans every dirty volume and takes slots for the calls that may begin. Volumes
// whose call has just ended come first, so that a volume that was begun is soon done or gone,
// then those that wait for a slot, then the rest. So no newcomer overtakes a volume that
// waits.
func (l *loop) plan(now time.Time) []*start {
	for _, d := range l.drivers {
		d.entering = 0
	}
	rest := l.dirty
	l.dirty = l.ahead
	starts := l.planDirty(nil, now)
	l.ahead, l.dirty = l.dirty, rest // ahead is empty now, and planning adds nothing to it
	return l.planDirty(starts, now)
}

// planDirty plans the dirty volumes and then, while slots are free, those that wait for
// one. It repeats that, since a volume that was unblocked may no longer need its slot.
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
		l.correctAnnounced(id)
	}
}

// planOne plans one volume, and returns the call to start if there is one.
func (l *loop) planOne(id state.VolumeID, now time.Time) (*start, bool) {
	l.changed.push(id)
	v := l.volumes[id]
	if v == nil || v.call != nil || v.quarantined != "" {
		return nil, false // a volume with a call in flight is planned again when it ends
	}
	r, w := v.recordOrEmpty(), l.allowedWish(v)
	if v.record == nil {
		if len(w.Pods) == 0 {
			l.forget(v)
			l.holdEmptied(v, now)
			return nil, false
		}
		r.Spec = w.Spec
	}
	d := l.driverOf(r, w)
	f := l.facts(v, r, w, d)
	if v.record != nil {
		r = l.resize(l.adoptStage(r, f), w, f)
	}
	op, held := plan.Next(w, r, f, now)
	if op.Kind == plan.None {
		v.stopWaiting()
		v.hold(held, now)
		l.wakes.set(id, held.Until)
		if v.record != nil && r.Clear() {
			l.drop(v)
			l.holdEmptied(v, now)
		}
		return nil, false
	}
	if !l.cfg.Limits.Admit(l.running, d.running, op.Kind) {
		l.block(v, d, op.Kind, turnOf(op, w, r))
		l.announce(v, r, op, w, f)
		v.hold(plan.Held{
			Step: op.Kind, Pod: op.Pod, Code: plan.Slot,
			Reason: "waiting for a slot: the driver or the node has its maximum number of calls in flight",
		}, now)
		return nil, false
	}
	v.stopWaiting()
	v.held = nil
	if r.Clear() {
		d.entering++
	}
	s := &start{id: id, op: op, begun: plan.Begin(r, op, w, f), driver: d}
	if !l.journal.covers(&s.begun, op) {
		intent := plan.Intent(s.begun, op, w, f)
		s.intent = &intent
		if op.Kind.Removes() {
			s.begun.Mounts = intent.Mounts // a pod that returns must not see a mount that the journal says is leaving
		}
	}
	l.repeatUnpublish(s)
	l.countStart(d, op)
	s.callsInFlight = d.running.Calls
	v.call = &call{op: op, since: now}
	return s, true
}

// resize applies the changes of the volume's size that need no call.
func (l *loop) resize(v state.Volume, w state.Want, f plan.Facts) state.Volume {
	now, changed := plan.Resize(v, w, f)
	if !changed {
		return v
	}
	l.setRecord(new(now))
	if now.SizeBytes != cmp.Or(v.SizeBytes, w.HaveBytes, w.SizeBytes) && l.cfg.OnExpanded != nil {
		l.cfg.OnExpanded(now)
	}
	return now
}

// adoptStage adds a stage whose record the journal lost.
func (l *loop) adoptStage(v state.Volume, f plan.Facts) state.Volume {
	now, changed := plan.AdoptStage(v, f.Doubt)
	if !changed {
		return v
	}
	l.setRecord(new(now))
	return now
}

// hold notes why the volume waits. It keeps the time of an equal earlier reason.
func (v *volume) hold(h plan.Held, now time.Time) {
	if h.Code == "" {
		v.held, v.want = nil, nil
		return
	}
	since := now
	if was := v.held; was != nil && was.Step == h.Step && was.Pod == h.Pod && was.Code == h.Code {
		since = was.since
	}
	v.held = &heldSince{h, since}
}

// mergedWish returns the merged wish of all pods for a volume.
func (l *loop) mergedWish(v *volume) state.Want {
	var w state.Want
	if len(v.wants) > 0 {
		if v.want == nil {
			v.want = new(v.mergeWishes())
		}
		w = *v.want
	}
	return plan.HoldUntilListed(w, v.id, !l.cfg.InUseHandshake || l.gates.reported.has(v.id))
}

// mergeWishes merges the wishes of the pods. If they differ about the volume itself, the latest
// wish counts.
func (v *volume) mergeWishes() state.Want {
	var w state.Want
	var latest, sized uint64
	for uid, vw := range v.wants {
		if w.Pods == nil {
			w.Pods = make(map[state.PodUID]state.WantMount, len(v.wants))
		}
		w.Pods[uid] = state.WantMount{MountSpec: vw.Mount, Revision: vw.Revision}
		if vw.arrival >= latest {
			latest = vw.arrival
			w.Spec, w.Hold, w.Unattached = &vw.Spec, vw.Hold, vw.Unattached
		}
		if vw.SizeBytes != 0 && vw.arrival >= sized { // a pod that only reads asks for no size
			sized = vw.arrival
			w.Topology = vw.Topology
			w.SizeBytes, w.HaveBytes, w.Grown, w.NoGrow = vw.SizeBytes, vw.HaveBytes, vw.Grown, vw.NoGrow
		}
	}
	return w
}

// facts returns what the plan of v needs besides the wish w and the record r.
func (l *loop) facts(v *volume, r state.Volume, w state.Want, d *driver) plan.Facts {
	attaches := d.status.Attach && l.cfg.Attacher != nil
	f := plan.Facts{Synced: len(l.gates.unsynced) == 0 || l.gates.drain == DrainEmpty, Driver: plan.DriverFacts{
		Up: d.status.Up, Why: d.status.Problem,
		Full: cmp.Or(plan.OutOfReach(w.Topology, d.status.Up, d.status.Topology),
			plan.Unattachable(w, d.status.Up, attaches), l.noRoom(d)),
		Attach: attaches, Stage: d.status.Stage, Expand: d.status.Expand, MountGroup: d.status.MountGroup,
		Offline: d.status.Offline, Lacks: d.status.Unusable, Controller: d.apart.problem(),
	}}
	f.Doubt, f.Taken = l.doubt(r, w), l.takenPlaces(v, r, w)
	v.old = v.old && len(w.Pods) == 0
	f.Doubt.Attached = v.old && l.unrecorded != nil && l.unrecorded.lost
	if v.dead.known {
		f.Dead = plan.Dead{Known: true, Until: v.dead.until}
	}
	if l.cfg.Unmount != nil {
		f.Ladder, f.Order = l.cfg.Ladders.Of(d.status.Name), v.order
	}
	keep := func(uid state.PodUID, names []string) {
		why := ""
		if _, wants := w.Pods[uid]; !wants {
			why = plan.Keep(l.podFacts(uid, names))
		} else if v.unseen.has(uid) {
			why = reasonUnseen
		}
		if why != "" {
			if f.Keep == nil {
				f.Keep = map[state.PodUID]string{}
			}
			f.Keep[uid] = why
		}
	}
	for _, uid := range r.For {
		keep(uid, nil)
	}
	for uid, m := range r.Mounts {
		keep(uid, m.Names)
	}
	return f
}

// podFacts returns what is known of a pod that does not want a volume that it has under
// names. If names is nil, any of the pod's unresolved volumes may be that volume.
func (l *loop) podFacts(uid state.PodUID, names []string) plan.PodFacts {
	p, listed := l.pods.listed[uid]
	facts := plan.PodFacts{Listed: listed, Stopped: p.Stopped || l.gates.drain == DrainEmpty}
	if l.gates.drain != DrainEmpty && (!listed || p.Stopped) {
		facts.Living = l.living(uid)
	}
	for _, vw := range p.Volumes {
		shares := names == nil || slices.ContainsFunc(vw.Names, func(n string) bool { return slices.Contains(names, n) })
		if vw.Unresolved() && shares {
			facts.Unresolved = vw.Problem
			break
		}
	}
	return facts
}

// driverOf returns the driver of a volume, and registers the volume with it. The driver
// need not have been up yet.
func (l *loop) driverOf(v state.Volume, w state.Want) *driver {
	name := v.Spec.Driver
	if name == "" {
		name = w.Spec.Driver
	}
	d := l.driver(name)
	d.keys[v.ID] = struct{}{}
	return d
}

func neverUp(name state.DriverName) string {
	return "driver " + string(name) + " has not registered since the daemon started"
}

// driver returns the driver called name, creating its entry if there is none.
func (l *loop) driver(name state.DriverName) *driver {
	d := l.drivers[name]
	if d == nil {
		d = &driver{keys: set[state.VolumeID]{}, info: &DriverInfo{Name: name}, status: DriverStatus{
			DriverInfo: DriverInfo{Name: name}, Problem: neverUp(name),
		}}
		l.drivers[name] = d
	}
	return d
}
