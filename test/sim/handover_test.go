package sim

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"path"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/tools/handover"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// tries is how often the operator repeats a command that died or met a disk error.
const tries = 8

// command is one run of adopt or release, which can die like a daemon.
func (w *world) command() *life {
	w.lives++
	return &life{w: w, number: w.lives, died: make(chan struct{}), cancel: func() {}}
}

// adopt takes over the kubelet's volumes and starts a life. It reports whether it did, or else why
// not. A command that died is repeated.
func (w *world) adopt(reason string) (done bool, why string) {
	synctest.Wait()
	w.mu.Lock()
	may := w.kubelet && len(w.silent) == 0
	w.disk.full = false // else adopt fails, and the operator makes room
	w.mu.Unlock()
	if !may {
		return false, "a source is silent, or no kubelet has the volumes"
	}
	runs := 0
	for range tries {
		runs++
		w.mu.Lock()
		l, boot := w.command(), fmt.Sprint("boot-", w.boot)
		w.mu.Unlock()
		err := w.adoptOnce(l, boot, reason, &why)
		if why != "" {
			return false, why
		}
		if err == nil {
			break
		}
	}
	w.mu.Lock()
	w.judge.takenOver(runs > 1)
	w.count.faults["adopt"]++
	w.kubelet = false
	w.doubt()
	w.mu.Unlock()
	if err := w.start(); err != nil {
		panic(err)
	}
	return true, ""
}

func (w *world) adoptOnce(l *life, boot, reason string, why *string) error {
	ctx := context.Background()
	journal, err := manager.OpenOffline(ctx, store{w, l}, boot)
	if err != nil {
		return err
	}
	w.mu.Lock()
	in := handover.Input{Layout: layout, Disk: w.found(), Journal: journal.Volumes(), Pods: map[state.PodUID]state.PodWant{}, Drivers: map[state.DriverName]handover.Abilities{}}
	for uid := range w.wishes {
		in.Pods[state.PodUID(uid)] = w.wantOf(uid, false)
	}
	for name := range otherwise {
		if i := w.info(name); !w.down[name] {
			in.Drivers[name] = handover.Abilities{Stage: i.Stage, MountGroup: i.MountGroup}
		}
	}
	w.mu.Unlock()
	t := handover.Adopt(in)
	if *why = handover.Against(t.Refusals, reason); *why != "" {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(in.Journal) > 0 {
			w.breach("adopt: refused after it died: %s", *why)
		}
		return nil
	}
	changes := map[state.VolumeID]*state.Volume{}
	for id, v := range t.Records {
		changes[id] = &v
	}
	w.mu.Lock()
	if len(in.Journal) > 0 && len(changes) > 0 {
		w.breach("adopt: %v are new the second time", sortedKeys(changes))
	}
	w.mu.Unlock()
	if err := journal.Commit(ctx, changes); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.springs("commit") { // after the last commit
		return errDead
	}
	for _, at := range t.Empty {
		w.forget(at)
	}
	for _, i := range t.Items { // the operator removes what is left with nothing in it
		if _, there := w.table[i.Path]; !there && i.Volume == "" && i.Pod == "" {
			w.forget(cmp.Or(stages[path.Base(i.Path)], i.Path)) // for a device, its directory
		}
	}
	return nil
}

// takenOver checks the records that adopt made: each states the truth. If adopt ran twice, work
// that was in progress during the first run may have finished since.
func (j *judge) takenOver(again bool) {
	w := j.w
	w.takeovers++
	for _, at := range sortedKeys(places) {
		of := places[at]
		id, _ := w.specOf(of.uid, of.name)
		ls, r := j.of(id), w.disk.records[id]
		ln, fact, seen := &ls.stage, r.Stage, r.Staged
		if of.uid != "" {
			m := r.Mounts[state.PodUID(of.uid)]
			ln, fact, seen = ls.lane(op{pod: state.PodUID(of.uid)}), m.Fact, m.Seen
		}
		m, there := w.table[at]
		switch {
		case fact.Phase == state.Leaving:
			w.breach("adopt: %s is to be removed by its record", at)
		case there && again && fact.Phase == state.Entering:
		case there && m.dir && of.uid == "" && fact.Phase == state.Entering: // a device's directory shows no stage
		case there && (fact.Phase != state.Present || seen.Mounted == m.dir):
			w.breach("adopt: %s is there, and its record says %v, seen as %+v", at, fact.Phase, seen)
		case !there && ln.making && fact.Phase == state.Absent && w.info(volumes[of.name].driver).Stage:
			w.breach("adopt: %s may be there, and no record says so", at)
		case !there && fact.Phase == state.Absent:
			if ln.making {
				w.unknown[at] = w.takeovers // a kubelet also has such a directory for drivers that stage nothing
			}
			*ln = lane{removed: true}
		}
		ln.foreign, ln.there = ln.making, there && fact.Phase == state.Present
		ln.ok = ln.ok || there // of an interrupted call the kernel alone knows the result
	}
}

// again checks that the daemon does not make again what it took over mounted.
func (j *judge) again(o op, ln *lane) {
	at := o.v.Mounts[o.pod].Target
	if o.verb == "Stage" {
		at = o.v.Spec.StagePath
	}
	_, still := j.w.table[at]
	if ln.there && still && (o.verb == "Stage" || o.verb == "Publish") && !volumes[o.name].renewed {
		j.w.breach("adopt: %v, and %s was taken over as it is mounted", o, at)
	}
	if o.verb != "Expand" {
		ln.there = false
	}
}

// gone: nothing is left at the paths, and the agent that has the volumes knows that.
func (j *judge) gone(paths iter.Seq[string]) {
	for at := range paths {
		of := places[at]
		if _, ok := j.w.table[at]; ok {
			continue
		}
		id, _ := j.w.specOf(of.uid, of.name)
		if of.uid == "" {
			j.of(id).stage = lane{removed: true}
		} else {
			*j.of(id).lane(op{pod: state.PodUID(of.uid)}) = lane{removed: true}
		}
	}
}

// release hands everything back, unless something prevents it; afterwards there is no life.
func (w *world) release() {
	if w.kubelet {
		return
	}
	w.halt()
	for range tries {
		w.mu.Lock()
		l, boot := w.command(), fmt.Sprint("boot-", w.boot)
		w.mu.Unlock()
		refused, err := w.releaseOnce(l, boot)
		if refused {
			break
		}
		if err == nil {
			w.mu.Lock()
			w.judge.handedBack()
			w.count.faults["release"]++
			w.kubelet = true
			w.mu.Unlock()
			w.idleLife()
			return
		}
	}
	if err := w.start(); err != nil {
		panic(err)
	}
}

func (w *world) releaseOnce(l *life, boot string) (refused bool, err error) {
	ctx := context.Background()
	journal, err := manager.OpenOffline(ctx, store{w, l}, boot)
	if err != nil {
		return false, err
	}
	w.mu.Lock()
	back := handover.Release(handover.Managed{Layout: layout, NodeName: "n", Journal: journal.Volumes(), Mounts: w.found().Mounts})
	if refused = handover.Against(back.Refusals, "") != ""; !refused {
		for _, id := range back.Records {
			if v := journal.Volumes()[id]; len(leaving(v)) > 0 {
				w.breach("release: %s is handed back in the middle of its removal", id)
			}
		}
		for _, f := range back.Files {
			w.notes[f.Path] = handover.Notes{Found: true, Values: f.Values}
			if _, there := w.table[f.Dir]; !there && volumes[places[f.Dir].name].block {
				id, _ := w.specOf("", places[f.Dir].name)
				w.change(f.Dir, made(f.Dir, w.devOf(id), 1))
			}
		}
	}
	w.mu.Unlock()
	if refused {
		return true, nil
	}
	gone := map[state.VolumeID]*state.Volume{}
	for _, id := range back.Records {
		gone[id] = nil
	}
	return false, journal.Commit(ctx, gone)
}

// handedBack checks that a kubelet finds everything that exists or may exist.
func (j *judge) handedBack() {
	w := j.w
	if len(w.disk.records) > 0 {
		w.breach("release: records of %v are left", sortedKeys(w.disk.records))
	}
	for _, at := range sortedKeys(places) {
		of := places[at]
		id, spec := w.specOf(of.uid, of.name)
		ln := &j.of(id).stage
		if of.uid != "" {
			ln = j.of(id).lane(op{pod: state.PodUID(of.uid)})
		}
		_, there := w.table[at]
		notes := w.notes[notesOf(at)]
		switch {
		case !there && !ln.making || spec.Builtin:
		case notes.Values["driverName"] != string(spec.Driver) || notes.Values["volumeHandle"] != spec.Handle:
			w.breach("release: %s is there or may be, and no kubelet finds it: %v", at, notes)
		}
		if ln.removing && !there {
			*ln = lane{removed: true}
		}
	}
}

// halt sends SIGTERM, and waits for the end of the life and of its calls.
func (w *world) halt() {
	w.end()
	<-w.life.done
	synctest.Wait()
}

// idleLife starts the daemon after a release, on a node whose pods belong to the kubelet: it must
// make no call.
func (w *world) idleLife() {
	w.mu.Lock()
	calls, wishes, silent, calm := maps.Clone(w.count.calls), w.wishes, w.silent, w.calm
	w.wishes, w.silent, w.calm = map[string]pod{}, map[string]bool{}, true
	w.mu.Unlock()
	if err := w.start(); err != nil {
		panic(err)
	}
	time.Sleep(time.Minute)
	w.halt()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wishes, w.silent, w.calm = wishes, silent, calm
	if !maps.Equal(calls, w.count.calls) {
		w.breach("release: the manager made calls after it: before %v, after %v", calls, w.count.calls)
	}
}

// handsOver ends a kubelet's time: the kubelet completes or undoes its work, and then nothing
// prevents a takeover.
func (w *world) handsOver() {
	if !w.kubelet {
		return
	}
	w.pass(10 * time.Minute) // until the drivers' unfinished work ends
	w.mu.Lock()
	clear(w.frozen)
	for range 2 {
		for _, uid := range pods {
			w.syncs(uid, -1)
		}
	}
	w.mu.Unlock()
	if done, why := w.adopt(""); !done {
		w.mu.Lock()
		w.breach("adopt: refused with nothing in the way: %s", why)
		w.kubelet = false
		w.mu.Unlock()
		if err := w.start(); err != nil {
			panic(err)
		}
	}
}
