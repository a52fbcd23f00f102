package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// judge checks the rules. It knows every call of all lives of the daemon, and its true effect.
type judge struct {
	w     *world
	lanes map[state.VolumeID]*lanes
	// running has, by pod, the targets that its containers hold: the daemon reported the pod ready,
	// and nothing says that the containers ended.
	running map[string]map[string]bool
	// vanished has the paths that others unmounted, and the time from which a look could show that.
	vanished map[string]time.Time
	// renewed is the time of the last successful call, by path, for volumes that need renewal.
	renewed map[string]time.Time
	// orders are the operator's orders of this life that are not carried out yet.
	orders []*order
	// whole has the group snapshots that were reported ready and are at the storage.
	whole map[string]bool
	// has are the snapshots, named by their handle, that their owners have.
	has map[string]bool
	// passed counts, by volume of a small pod that waits for a slot, the calls of the crowd that began meanwhile,
	// in the life turnsOf.
	passed  map[waiting]int
	turnsOf *life
}

// lane is the sequence of calls that make and undo one fact.
type lane struct {
	// making: a call that makes it has begun, and no call that removes it has succeeded since.
	making bool
	// removing: a call that removes it has begun, and none has succeeded since.
	removing bool
	// removed: a call that removes it has succeeded since; one more does no harm.
	removed bool
	// undone: a call that removes it has returned OK since, but left a layer.
	undone bool
	// left: since it was made, the pod's containers were proven to have ended.
	left bool
	// ok: the newest call of the lane returned OK, and it really exists.
	ok bool
	// said: a call that makes it has returned OK since, true or not.
	said bool
	req  string // the content of the request that makes it
	// foreign: another agent made it, with an unknown request. there: it existed at the takeover.
	foreign, there bool
	// tried is the last life in which a call to remove it ended, and triedAt when the first such
	// call of that life did.
	tried   int
	triedAt time.Time
}

type lanes struct {
	attach, stage lane
	publish       map[state.PodUID]*lane
	inFlight      string
	life          int // the life whose call is in flight
}

func newJudge(w *world) *judge {
	return &judge{w: w, lanes: map[state.VolumeID]*lanes{}, running: map[string]map[string]bool{}, vanished: map[string]time.Time{}, renewed: map[string]time.Time{}, whole: map[string]bool{}, has: map[string]bool{}}
}

func (j *judge) of(id state.VolumeID) *lanes {
	if j.lanes[id] == nil {
		j.lanes[id] = &lanes{publish: map[state.PodUID]*lane{}}
	}
	return j.lanes[id]
}

func (ls *lanes) lane(o op) *lane {
	switch o.verb {
	case "Attach", "Detach":
		return &ls.attach
	case "Stage", "Unstage":
		return &ls.stage
	}
	if ls.publish[o.pod] == nil {
		ls.publish[o.pod] = &lane{}
	}
	return ls.publish[o.pod]
}

func removes(verb string) bool { return verb == "Detach" || verb == "Unstage" || verb == "Unpublish" }

// request returns the content of a call. A repeated call must have the same content, and a removal
// must name the same object (CSI passes no publish context to it).
func request(o op) string {
	s := fmt.Sprint(o.v.Spec.FSType, o.v.Spec.StagePath, o.v.Spec.Handle, o.v.Spec.MountGroup)
	switch o.verb {
	case "Attach", "Detach":
		return fmt.Sprint(o.v.Spec.Driver, o.v.Spec.Handle)
	case "Publish", "Unpublish":
		m := o.v.Mounts[o.pod]
		return s + fmt.Sprint(m.Target, m.ReadOnly, m.Context)
	}
	return s
}

// begin judges whether a call may be made; mu is held.
func (j *judge) begin(l *life, o op) {
	w, ls := j.w, j.of(o.v.ID)
	ln := ls.lane(o)
	if ls.inFlight != "" && ls.life == l.number {
		w.breach("rule 2, J1, J6: %v while %s is in flight", o, ls.inFlight)
	}
	ls.inFlight, ls.life = o.String(), l.number
	if former(o) {
		j.unpublishesAgain(o)
		return
	}
	if ln.removing && !removes(o.verb) {
		w.breach("rule 2: %v turns back from a removal whose answer was lost", o)
	}
	j.again(o, ln)
	if o.verb != "Expand" && ln.making && !ln.foreign && ln.req != request(o) {
		w.breach("J5: %v says %q, and what it repeats or removes said %q", o, request(o), ln.req)
	}
	j.order(o, ls)
	j.drained(l, o)
	j.turns(l, o)
	late := j.durable(o)
	if removes(o.verb) {
		j.proven(l, o, ln)
		ln.removing = true
	} else if o.verb != "Expand" {
		ln.foreign = false
		ln.making, ln.removed, ln.undone, ln.left, ln.req = true, false, false, late || l.left[string(o.pod)], request(o)
		if o.v.Needs.Attach && o.verb != "Attach" && o.v.PublishContext["device"] != "x" {
			w.breach("J5: %v without the publish context that Attach returned", o)
		}
	}
}

// order checks rule 1, J2 and J3.
func (j *judge) order(o op, ls *lanes) {
	w := j.w
	switch o.verb {
	case "Stage":
		if o.v.Needs.Attach && !ls.attach.ok {
			w.breach("rule 1: %v, and it is not attached", o)
		}
	case "Publish", "Expand":
		if o.v.Needs.Stage && !ls.stage.ok {
			w.breach("rule 1, J2: %v, and the newest outcome of its stage is not Stage=OK", o)
		}
		if volumes[o.name].exclusive && o.verb == "Publish" {
			for pod, other := range ls.publish {
				if pod != o.pod && other.making {
					w.breach("%v of a ReadWriteOncePod volume that pod %s has", o, pod)
				}
			}
		}
	case "Unstage", "Detach":
		if o.verb == "Detach" && ls.stage.making {
			w.breach("rule 1: %v while it is staged or may be", o)
		}
		for _, pod := range slices.Sorted(keys(ls.publish)) {
			if ls.publish[pod].making {
				w.breach("rule 1, J3: %v while it is published to %s or may be", o, pod)
			}
		}
	}
}

// durable checks that the intent is in the journal before the first side effect. late reports that
// the result of the call is already known to leave, so that nothing else must prove that it may go.
func (j *judge) durable(o op) (late bool) {
	r, ok := j.w.disk.records[o.v.ID]
	phase := r.Mounts[o.pod].Phase
	switch o.verb {
	case "Attach", "Detach":
		phase = r.Attach.Phase
	case "Stage", "Unstage":
		phase = r.Stage.Phase
	}
	// A pod may leave while its Publish is on the way to the driver, and the journal may record
	// that before the driver has the call: the removal follows.
	late = phase == state.Leaving && o.verb == "Publish" && j.of(o.v.ID).lane(o).left
	switch {
	case !ok || phase == state.Absent, removes(o.verb) && phase != state.Leaving, !removes(o.verb) && phase == state.Leaving && !late:
		j.w.breach("intent: %v, and the journal says that it is %v", o, phase)
	case !r.Spec.Equal(o.v.Spec):
		j.w.breach("intent: %v, and the journal has another spec for it", o)
	case o.pod != "" && !late && !r.Mounts[o.pod].MountSpec.Equal(o.v.Mounts[o.pod].MountSpec):
		j.w.breach("intent: %v, and the journal has another mount for it", o)
	}
	return late
}

// proven checks rule 5.
func (j *judge) proven(l *life, o op, ln *lane) {
	w := j.w
	if to := o.v.Mounts[o.pod].Target; o.verb == "Unpublish" && j.running[string(o.pod)][to] {
		if _, ok := w.table[to]; ok {
			w.breach("rule 5: %v, and the pod is running", o)
		}
	}
	if ln.removing || ln.removed || ln.left || l.leaving[o.String()] || l.empties {
		return // a removal continues once begun, even if only its intent is durable
	}
	wanted := false
	for uid, p := range l.told {
		for _, vw := range p.Volumes {
			wanted = wanted || vw.ID == o.v.ID && !p.Stopped && (o.pod == "" || string(o.pod) == uid)
		}
	}
	if wanted {
		return // it is made again in another form
	}
	if len(l.spoken) < len(sources) {
		w.breach("rule 5: %v, and not every source has spoken", o)
	}
	of := []state.PodUID{o.pod}
	if o.pod == "" {
		of = o.v.For
	}
	for _, uid := range of {
		if p, listed := l.told[string(uid)]; listed && !p.Stopped {
			w.breach("rule 5: %v, and pod %s is listed and did not stop", o, uid)
		}
		if l.ended != nil && !l.ended[uid] {
			w.breach("rule 5: %v, and the runtime has not said that no container of pod %s runs", o, uid)
		}
	}
}

// decided judges, at the time of the write, the removals that a record begins: the manager will
// make them whatever it hears later, even if the write fails.
func (j *judge) decided(l *life, v state.Volume) {
	if was := j.w.disk.records[v.ID]; was.InUse() && j.of(v.ID).made() && len(leaving(was)) == 0 && was.Needs != v.Needs {
		j.w.breach("J5: %s was begun as %+v, and goes on as %+v", v.ID, was.Needs, v.Needs)
	}
	for _, o := range leaving(v) {
		o.v, o.name = v, v.Spec.Name
		ln := j.of(v.ID).lane(o)
		j.proven(l, o, ln)
		ln.left = true
	}
}

// leaving returns the removals that a record says have begun.
func leaving(v state.Volume) (ops []op) {
	if v.Attach.Phase == state.Leaving {
		ops = append(ops, op{verb: "Detach"})
	}
	if v.Stage.Phase == state.Leaving {
		ops = append(ops, op{verb: "Unstage"})
	}
	for _, uid := range sortedKeys(v.Mounts) {
		if v.Mounts[uid].Phase == state.Leaving {
			ops = append(ops, op{verb: "Unpublish", pod: uid})
		}
	}
	return ops
}

// end updates the lane with a call's answer and the truth; mu is held.
func (j *judge) end(l *life, o op, err error) {
	ls := j.of(o.v.ID)
	ln := ls.lane(o)
	if ls.life == l.number {
		ls.inFlight = ""
	}
	if former(o) {
		return // it changes no fact
	}
	there := j.truth(o)
	if removes(o.verb) {
		ln.tries(l)
	}
	switch {
	case o.verb == "Expand":
	case removes(o.verb) && err == nil && !there:
		*ln = lane{removed: true}
	case removes(o.verb) && err == nil:
		ln.undone = true
	case removes(o.verb) && (ln.removed || ln.undone) && !there && state.AsCallError(o.verb, err).Outcome != state.Uncertain:
		*ln = lane{removed: true} // when called again after a lie, a driver may refuse
	case !removes(o.verb):
		ln.said = ln.said || err == nil
		if ln.ok = err == nil && there; ln.ok {
			j.renewed[o.v.Mounts[o.pod].Target] = time.Now()
		}
	}
}

// truth reports whether the object of a call exists.
func (j *judge) truth(o op) bool {
	var ok bool
	switch o.verb {
	case "Attach", "Detach":
		ok = j.w.attached[o.v.ID]
	case "Stage", "Unstage":
		_, ok = j.w.table[o.v.Spec.StagePath]
	default:
		_, ok = j.w.table[o.v.Mounts[o.pod].Target]
	}
	return ok
}

// looked: from now on the daemon can know that a path vanished; mu is held.
func (j *judge) looked(path string) {
	if at, ok := j.vanished[path]; ok && at.IsZero() {
		j.vanished[path] = time.Now()
	}
}

// rebooted: no mount and no container is left.
func (j *judge) rebooted() {
	for _, ls := range j.lanes {
		ls.stage.ok, ls.stage.there = false, false // a directory is still there, and is staged again
		for _, ln := range ls.publish {
			ln.ok, ln.there = false, false
		}
	}
	clear(j.running)
	clear(j.vanished)
}

// stopped: the owner says that a pod's containers have ended.
func (j *judge) stopped(pod string) { delete(j.running, pod) }

// left: the daemon heard that the pod left, every source has spoken, and the runtime, if there is
// one, sees none of its containers.
func (j *judge) left(l *life, pod string) {
	if p, listed := l.told[pod]; listed && !p.Stopped || len(l.spoken) < len(sources) {
		return
	}
	if l.ended != nil && !l.ended[state.PodUID(pod)] {
		return
	}
	l.left[pod] = true
	for id := range j.w.disk.records { // there may have been no more than an intent
		j.of(id)
	}
	for _, ls := range j.lanes {
		ls.lane(op{pod: state.PodUID(pod)}).left = true
	}
}

// board judges the manager's own report, at a moment when the manager has nothing to do; mu is
// held.
func (j *judge) board(l *life) {
	w := j.w
	if l == nil || l.dead || w.kubelet {
		return
	}
	upToDate := l.showsAll()
	if upToDate {
		clear(l.left)
		l.shown = true
	}
	j.groups(l)
	j.share(l)
	j.heirs(l)
	if !l.shown {
		return
	}
	inUse := l.m.GetVolumesInUse()
	_, all := l.m.AttachedInUse()
	for _, id := range slices.Sorted(keys(j.lanes)) {
		ls := j.lanes[id]
		if j.persistent(id) && ls.made() && all && !slices.Contains(inUse, id) {
			w.breach("rule 3, J4: %s is not in use, and is staged or published or may be", id)
		}
	}
	for _, p := range l.m.Pods() {
		j.pod(l, p, upToDate)
	}
	for _, v := range l.m.Volumes() {
		w.count.saw(v, w.disk.records[v.Volume.ID])
		if v.Call.Kind == plan.None && !v.Held.Waits() && !v.Volume.Clear() && len(v.Wanted) == 0 {
			w.breach("rule 10: %s is not wanted, is there, and nothing says why", v.Volume.ID)
		}
	}
}

// made reports whether a call has begun whose result is or may be on the node.
func (ls *lanes) made() bool {
	return ls.stage.making || slices.ContainsFunc(slices.Collect(values(ls.publish)), func(ln *lane) bool { return ln.making })
}

func (j *judge) persistent(id state.VolumeID) bool {
	for name, v := range volumes {
		if !v.own && !drivers[v.driver].Builtin && state.SharedID(v.driver, name) == id {
			return true
		}
	}
	return false
}

// pod checks rule 6 (what is reported as mounted is mounted) and rule 10 (what is missing is
// explained). The container runtime waits until the board shows everything that the manager heard.
func (j *judge) pod(l *life, p manager.PodStatus, upToDate bool) {
	w, uid := j.w, string(p.Pod.UID)
	has := map[string]state.VolumeID{}
	for _, v := range p.Volumes {
		if !v.Mounted {
			if v.Step == plan.None && v.BlockedBy == "" {
				w.breach("rule 10: pod %s lacks %v, and nothing says why", uid, v.Names)
			}
			continue
		}
		to := target(uid, v.Names[0])
		has[to] = v.ID
		if _, ok := w.table[to]; !ok && !j.excused(to) {
			w.breach("rule 6: pod %s is said to have %v, and there is nothing at %s", uid, v.Names, to)
		}
		if of, _ := l.m.Volume(v.ID); of.Volume.Needs.Stage {
			if _, ok := w.table[stagePath(v.Names[0])]; !ok && !j.excused(stagePath(v.Names[0])) {
				w.breach("rule 6: pod %s is said to have %v, and it is not staged", uid, v.Names)
			}
		}
	}
	if upToDate && p.Ready && len(l.told[uid].Volumes) > 0 && l.drain == manager.DrainEmpty {
		w.breach("drain: pod %s is reported ready while its volumes go", uid)
	}
	if told, listed := l.told[uid]; l.empties || !upToDate || !p.Ready || !listed || told.Stopped || w.wishes[uid].stopped {
		return
	}
	if _, listed := w.wishes[uid]; !listed {
		return
	}
	if j.running[uid] == nil {
		j.running[uid] = map[string]bool{}
	}
	for to := range has {
		if _, ok := w.table[to]; ok {
			j.running[uid][to] = true
		}
	}
}

// grace is how long a daemon may take to report the result of a look.
const grace = time.Minute

func (j *judge) excused(path string) bool {
	at, ok := j.vanished[path]
	return ok && (at.IsZero() || time.Since(at) < grace)
}
