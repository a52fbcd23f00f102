package sim

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// drains are the operator's orders about the node as a whole, by the word of a step.
var drains = map[string]manager.Drain{"hold": manager.DrainHold, "empty": manager.DrainEmpty, "end": 0}

// draining returns a step of an operator who drains the node and ends that.
func draining(r *rand.Rand) string {
	return "drain " + []string{"hold", "hold", "empty", "end", "end"}[r.IntN(5)]
}

// drainTo carries out the operator's order. For DrainEmpty, no container runs until its end. mu is
// held.
func (w *world) drainTo(d manager.Drain) {
	if w.kubelet || w.life.dead {
		return // no daemon takes the order
	}
	w.drain = d
	w.life.drainTo(d)
}

// drainTo passes the order to the manager, as a start does with the journal's. mu is held.
func (l *life) drainTo(d manager.Drain) {
	l.orders++
	n := l.orders
	if d == manager.DrainEmpty {
		l.empties = true
		for _, uid := range everyPod {
			l.w.judge.stopped(uid)
		}
		l.w.judge.emptied()
	}
	l.drain = 0
	l.m.SetDrain(d)
	go func() {
		if l.m.Settle(context.Background()) != nil {
			return // the life has ended
		}
		l.w.mu.Lock()
		defer l.w.mu.Unlock()
		if l.orders == n {
			l.drain, l.drainedAt, l.empties = d, time.Now(), d == manager.DrainEmpty
		}
	}()
}

// doubt ends the operator's word that no container runs, since some may have been started; mu is
// held.
func (w *world) doubt() {
	if w.drain == manager.DrainEmpty {
		w.drain = manager.DrainHold
	}
}

// emptied: what has been made is proven to be in no use. A removal that the manager decides on because of
// that may begin after the drain has ended, when a call in flight has.
func (j *judge) emptied() {
	for _, of := range places { // there may be no more than an intent, or a write of one in progress
		id, _ := j.w.specOf(of.uid, of.name)
		j.of(id).lane(op{pod: state.PodUID(of.uid)})
	}
	for _, ls := range j.lanes {
		ls.attach.left, ls.stage.left = true, true
		for _, ln := range ls.publish {
			ln.left = true
		}
	}
}

// drained checks that nothing new is made while a drain is in effect. What was decided before may
// begin at the same moment. mu is held.
func (j *judge) drained(l *life, o op) {
	if removes(o.verb) || o.verb == "Expand" || l.drain == 0 || !time.Now().After(l.drainedAt) {
		return
	}
	if o.verb == "Publish" && (j.of(o.v.ID).lane(o).said || j.w.disk.records[o.v.ID].Mounts[o.pod].Phase == state.Present) {
		return // it renews what the pod has
	}
	j.w.breach("drain: %v begins while the node is drained", o)
}

// emptied checks that DrainEmpty unmounts everything once the drivers are back, and that its end
// mounts it again.
func (w *world) emptied() {
	w.mu.Lock()
	skip := w.disk.damaged || w.dice("emptied")%4 > 0
	if !skip {
		w.now = "(emptied)"
		for _, name := range sortedKeys(drivers) {
			w.driver("down", name)
		}
		w.drainTo(manager.DrainEmpty)
	}
	w.mu.Unlock()
	if skip {
		return
	}
	w.pass(time.Second)
	w.mu.Lock()
	for _, name := range sortedKeys(drivers) {
		w.driver("up", name)
	}
	w.mu.Unlock()
	w.rest(time.Minute)
	w.mu.Lock()
	if len(w.table)+len(w.attached)+len(w.disk.records) > 0 {
		var left []string
		for _, v := range w.life.m.Volumes() {
			left = append(left, brief(v))
		}
		w.breach("drain: a node that was emptied has mounts %v, attached %v, records %v, volumes %v", sortedKeys(w.table), w.attached, sortedKeys(w.disk.records), left)
	}
	w.drainTo(0)
	w.mu.Unlock()
	w.rest(patience)
	w.unpause()
	w.rest(time.Minute)
	w.settled(nil)
}
