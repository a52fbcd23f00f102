package sim

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// damage makes the journal's file unusable: the daemon dies, and the next start finds the spare
// copy, which is older.
func (w *world) damage() {
	if w.kubelet {
		return
	}
	w.kill("with its journal")
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended++ // the node shows nothing of an attachment without a record
	newest := w.disk.records
	w.disk.journal = w.disk.spare.Copy()
	if err := w.disk.journal.Doubt("the script damaged it"); err != nil {
		panic(err)
	}
	loaded, err := w.disk.journal.Load(context.Background())
	if err != nil {
		panic(err)
	}
	w.thawHolds() // as a person does: no record tells of them
	w.disk.records, w.disk.lost, w.disk.damaged = loaded.Volumes, true, true
	w.doubt()
	w.authors.robbed(w.lives)
	w.schedule.keep = min(w.schedule.keep, w.schedule.spare)
	w.count.faults["damage"]++
	clear(w.asked)
	if !maps.EqualFunc(newest, loaded.Volumes, func(a, b state.Volume) bool { return a.ID == b.ID && len(a.Mounts) == len(b.Mounts) }) {
		w.count.faults["damage that lost records"]++
	}
	w.judge.forgotten()
}

// forgotten tells the judge that the daemon no longer knows its calls. For the rules, mounts stay
// mounts.
func (j *judge) forgotten() {
	for _, ls := range j.lanes {
		ls.attach.removing, ls.attach.foreign = false, ls.attach.making
		ls.stage.removing, ls.stage.foreign = false, ls.stage.making
		for _, ln := range ls.publish {
			ln.removing, ln.foreign = false, ln.making
		}
	}
	j.traceless()
}

// traceless clears the lanes of everything that has no record and does not exist: the daemon cannot
// know of it. A driver may still be making it: it counts once it exists.
func (j *judge) traceless() {
	for at, of := range places {
		id, _ := j.w.specOf(of.uid, of.name)
		o, r := op{pod: state.PodUID(of.uid)}, j.w.disk.records[id]
		phase := r.Stage.Phase
		if of.uid == "" {
			o.verb = "Stage"
		} else {
			phase = r.Mounts[o.pod].Phase
		}
		m, there := j.w.table[at]
		if there && of.uid == "" && m.dir && phase == state.Absent && !j.w.published(of.name) { // a device's directory shows nothing
			delete(j.w.table, at)
			there = false
		}
		if !there && phase == state.Absent {
			*j.of(id).lane(o) = lane{removed: true}
		}
		if there && m.dir && !r.Mounts[o.pod].Seen.Exists {
			delete(j.running[of.uid], at) // the mount table does not show it: it counts once the pod hears of it again
		}
	}
}

// published reports whether anything of a volume exists at a pod's target.
func (w *world) published(name string) bool {
	for _, uid := range pods {
		if _, there := w.table[target(uid, name)]; there {
			return true
		}
	}
	return false
}

// detachUnrecorded is an operator who detaches volumes whose attachment has no record, once no pod
// has the volume: the node shows nothing of an attachment. mu is held.
func (w *world) detachUnrecorded() {
	for id := range w.attached {
		if v := w.disk.records[id]; v.Attach.Phase == state.Absent && len(v.Mounts) == 0 {
			delete(w.attached, id)
		}
	}
}

// restore is an operator who restores, from a backup, the volume of a claim that the older journal
// calls made, although DeleteVolume came later. The daemon must not make an empty volume in its
// place.
func (w *world) restore() {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for name := range w.claims {
		if w.disk.damaged && w.life.bound(name) && w.backend[w.life.handle(name)] == nil {
			w.backend[w.life.handle(name)] = &stored{size: 1}
		}
	}
	if c, _ := w.life.c.Claim(keyOf(kept)); w.disk.damaged && c.Volume != nil && w.backend[c.Volume.Handle] == nil {
		w.backend[c.Volume.Handle] = &stored{size: 1} // the schedule's snapshots wait for it, and its deletion for them
	}
}

// accept is an operator who follows the runbook: removes whatever still has no record after some
// time, and then accepts the loss, but not before everything that a pod wants has its record. A
// claim that is not bound may wait for the end of its former volume, which is mounted without a
// record.
func (w *world) accept() {
	w.mu.Lock()
	lost := w.disk.lost
	w.mu.Unlock()
	if !lost || w.kubelet {
		return
	}
	w.pass(10 * time.Minute) // until the drivers' unfinished work ends
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != "" {
		return
	}
	recorded := map[string]bool{}
	for _, v := range w.disk.records {
		recorded[v.Spec.StagePath] = v.Stage.Phase != state.Absent
		for _, m := range v.Mounts {
			recorded[m.Target] = m.Phase != state.Absent
		}
	}
	var taken []string
	waits := false
	for at, of := range places {
		if _, there := w.table[at]; !there || recorded[at] {
			continue
		}
		p := w.wishes[of.uid]
		_, wants := p.vols[of.name]
		wants = wants && !p.stopped && (!volumes[of.name].claimed || w.life.bound(of.name))
		if wants || w.frozen[of.name] {
			waits = true // for its record
			continue
		}
		taken = append(taken, at)
	}
	for _, at := range taken {
		w.change(at, nil)
		w.forget(at)
		delete(w.judge.running[places[at].uid], at)
	}
	w.judge.gone(slices.Values(taken))
	w.detachUnrecorded()
	if waits {
		return
	}
	if err := w.disk.journal.AcceptRecovery(context.Background()); err != nil {
		panic(err)
	}
	w.disk.lost = false
	w.life.m.AcceptUnrecorded()
	w.life.c.LossAccepted()
}

// forgets reports whether the journal may contradict the storage about copies, changes and
// deletions: a person has to end that, and what never gets ready breaks no rule. mu is held.
func (w *world) forgets() bool { return w.set.lost && w.disk.damaged }

// contradicts is a breach unless the journal may contradict the storage; mu is held.
func (w *world) contradicts(format string, args ...any) {
	if !w.forgets() {
		w.breach(format, args...)
	}
}

// losing returns steps in which the journal is damaged after a deletion was asked for: its spare copy
// has the deletion, or does not have it.
func losing(r *rand.Rand) []string {
	of := []string{"uncut s0 data", "uncut s1 data", "ungroup g0 data", "unclaim pvc-0 data", "unclaim pvc-1 data"}[r.IntN(5)]
	again := []string{"cut s0", "cut s1", "group g0 pvc-0", "claim pvc-0", "claim pvc-1"}[r.IntN(5)]
	switch r.IntN(4) {
	case 0:
		return []string{fmt.Sprintf("faults 90 %d", r.IntN(1e6)), of, "restart", "faults 0 0", "wait 3m", again, "damage", "wait 3s"}
	case 1:
		return []string{of, "wait 600ms", "damage"}
	case 2:
		return []string{"accept"}
	default:
		return []string{"damage", "wait 3s", of}
	}
}
