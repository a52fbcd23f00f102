package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// run runs a script and returns the first breach, or "".
func run(t *testing.T, lines []string, count *tally) (broken string) {
	synctest.Test(t, func(t *testing.T) {
		set, err := parseSettings(lines[0])
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(set, count)
		if err := w.start(); err != nil {
			t.Fatal(err)
		}
		w.pass(time.Nanosecond)
		for _, line := range lines[1:] {
			if err := w.do(line); err != nil {
				t.Fatal(err)
			}
			if w.pass(time.Nanosecond); w.broken != "" {
				break
			}
		}
		w.finish()
		w.kill("in the end")
		synctest.Wait()
		broken = w.broken
	})
	return broken
}

// pass lets time pass, judges on the way, and starts a new life if one ended.
func (w *world) pass(d time.Duration) {
	const looks = 5
	for range looks {
		time.Sleep(max(d/looks, 1))
		synctest.Wait()
		w.mu.Lock()
		w.judge.board(w.life)
		dead, broken := w.life.dead && !w.kubelet, w.broken != ""
		w.mu.Unlock()
		if dead {
			w.revive()
		}
		if broken || d == time.Nanosecond {
			return
		}
	}
}

// revive waits until a life has ended, and starts the next.
func (w *world) revive() {
	<-w.life.done
	synctest.Wait()
	if err := w.start(); err != nil {
		panic(err)
	}
}

// kill sends SIGKILL.
func (w *world) kill(when string) {
	w.mu.Lock()
	w.count.crashes[when]++
	w.life.die()
	w.mu.Unlock()
}

// stop sends SIGTERM: the daemon ends its calls and writes what it knows.
func (w *world) stop() {
	if w.kubelet {
		return
	}
	w.end()
	w.revive()
}

// lastCalls is how long a life that ends by itself may make calls of the controller and of the freezer.
const lastCalls = 10 * time.Second

// end lets a life end by itself.
func (w *world) end() {
	w.life.cancel()
	err := <-w.life.done
	disk := errors.Is(err, errDisk) || errors.Is(err, state.ErrFull) // its last write failed
	if err != nil && !errors.Is(err, context.Canceled) && !disk && w.broken == "" && !w.life.dead {
		w.broken = "stop: " + err.Error()
	}
	select {
	case <-w.life.controlled:
	case <-time.After(lastCalls):
	}
	w.mu.Lock()
	w.count.restarts++
	if !w.life.dead {
		w.life.dead = true
		close(w.life.died) // ends the calls that ignore their context
	}
	w.mu.Unlock()
	w.life.done <- nil
}

// reboot ends every mount and every process.
func (w *world) reboot() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count.crashes["of the node"]++
	w.powerOff()
}

// powerOff does what a reboot does; mu is held.
func (w *world) powerOff() {
	w.life.die()
	w.boot++
	if w.drain == manager.DrainEmpty {
		w.drain = 0 // it is for one boot
	}
	w.thawHolds()
	w.authors.rebooted()
	for path, m := range w.table {
		if !m.dir {
			delete(w.table, path)
		}
	}
	if w.kubelet {
		w.judge.gone(maps.Keys(places))
	}
	w.judge.rebooted()
	clear(w.late)
	if w.disk.lost {
		w.judge.traceless()
	}
}

func (w *world) ok() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.broken == ""
}

// finish ends all faults and checks that the node settles as wished: first while some volumes still
// hang, then with all volumes. It checks that a restart then makes no call, and that in the end
// nothing is left.
func (w *world) finish() {
	for _, phase := range []func(){w.calmDown, w.thaw, w.idle, w.emptied, w.clear} {
		if !w.ok() {
			return
		}
		phase()
	}
}

// patience is longer than twice the longest pause after a failure.
const patience = 30 * time.Minute

func (w *world) calmDown() {
	w.mu.Lock()
	w.now = "(calm)"
	w.faults, w.look, w.disk.fail, w.disk.full, w.disk.takes, w.trap, w.calm = faults{}, "", 0, false, 0, trap{}, true
	for name, o := range w.objects {
		o.hold = false
		w.objects[name] = o
	}
	for uid, p := range w.wishes {
		for name, ws := range p.vols {
			ws.problem = false
			p.vols[name] = ws
		}
		w.tell(uid)
	}
	clear(w.silent)
	for _, p := range w.wishes { // the claims that pods want are listed again
		for name := range p.vols {
			if volumes[name].claimed {
				w.claim(name)
			}
		}
	}
	w.drainTo(0)
	w.drain = 0 // for the life that takes over from a kubelet
	if w.kubelet {
		clear(w.down)
		w.mu.Unlock()
		w.handsOver()
		w.mu.Lock()
	}
	for _, s := range sources {
		w.life.speak(s, false)
	}
	for name := range otherwise { // in the version that a restart would find
		delete(w.down, name)
		if d := w.life.drivers[name]; d == nil || !reflect.DeepEqual(d.info, w.info(name)) {
			w.life.up(name)
		}
	}
	w.mu.Unlock()
	w.accept()
	w.restore()
	w.rest(patience)
	w.untend()
	w.unpause()
	w.rest(time.Minute)
	w.settled(w.frozen)
}

// rest lets time pass; the node's status reports the volumes in use.
func (w *world) rest(d time.Duration) {
	for range 3 {
		w.pass(d / 3)
		w.life.m.MarkVolumesAsReportedInUse(w.life.m.GetVolumesInUse())
	}
	w.pass(d / 3)
}

// unpause re-registers drivers whose final answers forbade a repetition.
func (w *world) unpause() {
	w.mu.Lock()
	defer w.mu.Unlock()
	again := map[state.DriverName]bool{}
	for _, v := range w.life.m.Volumes() {
		final := v.Volume.Attach.Retry().Final || v.Volume.Stage.Retry().Final || v.Volume.ExpandFailed.Value().Final
		for _, m := range v.Volume.Mounts {
			final = final || m.Retry().Final
		}
		if final {
			again[v.Volume.Spec.Driver] = true
		}
	}
	for name := range again {
		if drivers[name].Builtin {
			w.life.m.DriverUp(drivers[name], w.life.drivers[name])
			continue
		}
		w.life.up(name)
	}
}

func (w *world) thaw() {
	w.mu.Lock()
	w.now = "(thaw)"
	clear(w.frozen)
	w.mu.Unlock()
	w.accept()
	w.rest(patience)
	w.unpause()
	w.rest(time.Minute)
	w.settled(nil)
}

// renewal is longer than the longest time between two renewals of a volume.
const renewal = 2 * time.Minute

// settled checks rule 10: what is wanted exists, what is unwanted is gone.
func (w *world) settled(except map[string]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.provided()
	w.regrouped()
	w.housed()
	w.tended()
	may := map[string]bool{}
	sharers := map[string]bool{}
	for uid, p := range w.wishes {
		if p.stopped {
			continue
		}
		for name, ws := range p.vols {
			to := target(uid, name)
			may[to], may[stagePath(name)] = true, true
			if except[name] || volumes[name].claimed && (w.undecided(name) || w.forgets() && !w.life.bound(name)) {
				continue
			}
			id, _ := w.specOf(uid, name)
			v, _ := w.life.m.Volume(id)
			if v.Held.Code == plan.Kept {
				continue // kept for a listed pod, which may have it
			}
			if w.life.drivers[volumes[name].driver].info.MountGroup && w.hasAnother(uid, name) {
				continue // the volume has the group of the pod that has it
			}
			if at := w.judge.renewed[to]; volumes[name].renewed && time.Since(at) > renewal {
				w.breach("rule 10: pod %s has %s as it was renewed %v ago: %s", uid, name, time.Since(at), brief(v))
			}
			if _, ok := w.table[to]; !ok && !volumes[name].exclusive {
				w.breach("rule 10: pod %s never gets %s: %s", uid, name, brief(v))
			} else if ok && v.Volume.Mounts[state.PodUID(uid)].Revision != ws.rev {
				w.breach("rule 10: pod %s never gets revision %q of %s: %s", uid, ws.rev, name, brief(v))
			} else if ok && w.life.drivers[volumes[name].driver].info.Expand && !v.Volume.Mounts[state.PodUID(uid)].ReadOnly && v.Volume.SizeBytes < w.objects[name].size {
				w.breach("rule 10: %s never gets %d bytes and has %d: %s", name, w.objects[name].size, v.Volume.SizeBytes, brief(v))
			}
		}
	}
	for _, uid := range pods { // one pod has it, if only because it keeps it
		for name := range volumes {
			if _, ok := w.table[target(uid, name)]; ok {
				sharers[name] = true
			}
		}
	}
	for uid, p := range w.wishes {
		for name := range p.vols {
			if volumes[name].exclusive && !sharers[name] && !except[name] && !p.stopped {
				id, _ := w.specOf(uid, name)
				v, _ := w.life.m.Volume(id)
				if v.Held.Code == plan.Kept {
					continue // kept for a listed pod, which may have it
				}
				w.breach("rule 10: pod %s never gets %s, which no other pod has: %s", uid, name, brief(v))
			}
		}
	}
	for _, path := range sortedKeys(w.table) {
		of := places[path]
		if may[path] || except[of.name] {
			continue
		}
		kept := false // a listed pod keeps what it has
		for uid, p := range w.wishes {
			kept = kept || !p.stopped && (of.uid == "" || of.uid == uid)
		}
		if !kept {
			w.breach("rule 10: no pod wants %s, and it never goes", path)
		}
	}
	for _, p := range w.life.m.Pods() {
		for _, v := range p.Volumes {
			if _, ok := w.table[target(string(p.Pod.UID), v.Names[0])]; v.Mounted && !ok && !except[v.Names[0]] { // a hung volume is looked at after its call
				w.breach("rule 6: pod %s is said to have %v, for ever", p.Pod.UID, v.Names)
			}
		}
	}
}

// hasAnother reports whether a pod other than uid has the volume; mu is held.
func (w *world) hasAnother(uid, name string) bool {
	for _, other := range pods {
		if _, ok := w.table[target(other, name)]; ok && other != uid {
			return true
		}
	}
	return false
}

// idle checks that neither a restart nor a crash makes a call if everything is as wished.
func (w *world) idle() {
	w.mu.Lock()
	w.now = "(idle)"
	before, doubt := w.calls(), w.doubtful()
	w.mu.Unlock()
	if w.dice("idle")%2 == 0 {
		w.stop()
	} else {
		w.kill("when idle")
	}
	w.rest(time.Minute)
	w.mu.Lock()
	defer w.mu.Unlock()
	if after := w.calls(); after != before && !doubt {
		w.breach("a restart with nothing to do made calls: before %s, after %s", before, after)
	}
}

// calls returns the calls made, without renewals, which never stop; mu is held.
func (w *world) calls() string {
	calls := maps.Clone(w.count.calls)
	delete(calls, "Publish to be renewed")
	return fmt.Sprint(calls)
}

// doubtful reports whether a mount exists whose Publish failed and now waits for something else.
// The life that made the call knows that the pod never heard of the mount. The next life does not
// know, and calls again for the pod's sake. A snapshot of a volume that an older journal does not
// know is asked for again and again.
func (w *world) doubtful() bool {
	for _, v := range w.life.m.Volumes() {
		for _, m := range v.Volume.Mounts {
			if _, there := w.table[m.Target]; there && m.Phase == state.Entering {
				return true
			}
		}
	}
	lacks := func(s controller.SnapshotStatus) bool { return !s.Ready }
	return w.forgets() || w.disk.damaged && slices.ContainsFunc(w.life.c.Snapshots(), lacks)
}

// clear checks J7: half a minute after every pod is gone, nothing is left.
func (w *world) clear() {
	w.mu.Lock()
	w.now = "(clear)"
	for _, uid := range everyPod {
		delete(w.wishes, uid)
		w.judge.stopped(uid)
		w.tell(uid)
	}
	w.mu.Unlock()
	w.accept()
	w.pass(30 * time.Second)
	w.unclaimAll()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.disk.damaged {
		w.detachUnrecorded() // its record was begun again by a driver that no longer attaches
	}
	if len(w.table)+len(w.attached)+len(w.disk.records)+len(w.notes) > 0 || len(w.life.m.Volumes()) > 0 || len(w.life.m.Pods()) > 0 || len(w.life.m.GetVolumesInUse()) > 0 {
		var left []string
		for _, v := range w.life.m.Volumes() {
			left = append(left, brief(v))
		}
		w.breach("J7: left 30 s after every pod is gone: mounts %v, files %v, attached %v, records %v, volumes %v", sortedKeys(w.table), sortedKeys(w.notes), w.attached, sortedKeys(w.disk.records), left)
	}
}

// brief returns a volume's status in a line.
func brief(v manager.VolumeStatus) string {
	b := fmt.Sprintf("%s attach %v, stage %v, wanted by %v", v.Volume.ID, v.Volume.Attach.Phase, v.Volume.Stage.Phase, v.Wanted)
	for _, uid := range sortedKeys(v.Volume.Mounts) {
		b += fmt.Sprintf(", %s %v", uid, v.Volume.Mounts[uid].Phase)
	}
	return b + fmt.Sprintf(", call %v, held %v %v %q", v.Call, v.Held.Step, v.Held.Pod, v.Held.Reason)
}
