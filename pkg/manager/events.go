package manager

import (
	"slices"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// setPod replaces what a pod wants and marks the affected volumes to be planned.
func (l *loop) setPod(p state.PodWant) {
	uid := p.Pod.UID
	old := l.pods.listed[uid]
	l.pods.listed[uid] = p
	if !p.Stopped {
		l.stopAsking(uid)
	}
	l.pods.arrivals++
	now := map[state.VolumeID]bool{}
	if p.Stopped {
		l.endPod(uid)
	} else {
		for i := range p.Volumes {
			if vw := &p.Volumes[i]; !vw.Unresolved() {
				now[vw.ID] = true
				l.addWish(uid, wanted{vw, l.pods.arrivals})
			}
		}
	}
	for _, vw := range old.Volumes {
		if !vw.Unresolved() && !now[vw.ID] {
			l.removeWish(uid, vw.ID)
		}
	}
	l.markPod(uid)
}

// removePod removes a pod and its wishes.
func (l *loop) removePod(uid state.PodUID) {
	p, ok := l.pods.listed[uid]
	if !ok {
		return
	}
	delete(l.pods.listed, uid)
	l.endPod(uid)
	for _, vw := range p.Volumes {
		if !vw.Unresolved() {
			l.removeWish(uid, vw.ID)
		}
	}
	l.markPod(uid)
}

// endPod ends a pod's life, if its containers are proven to have ended: all its mounts are
// removed, even if a pod with the same UID is listed again before that has begun.
func (l *loop) endPod(uid state.PodUID) {
	if len(l.pods.volumes[uid]) == 0 || len(l.gates.unsynced) > 0 || plan.Keep(l.podFacts(uid, nil)) != "" {
		return
	}
	for _, id := range slices.Clone(l.pods.volumes[uid]) {
		l.setRecord(new(plan.Leave(l.row(id).recordOrEmpty(), uid)))
		l.dirty.push(id)
	}
}

// addWish records one pod's wish. A changed wish ends the pauses after failures, since it may
// have cured them.
func (l *loop) addWish(uid state.PodUID, w wanted) {
	l.dirty.push(w.ID)
	v := l.row(w.ID)
	if v.wants == nil {
		v.wants = map[state.PodUID]wanted{}
	}
	old, ok := v.wants[uid]
	if v.record != nil && v.record.ExpandFailed != nil { // another pod with the same wish does not cure an expansion
		other := len(v.wants) > 0 && w.SizeBytes != 0 && w.SizeBytes != l.mergedWish(v).SizeBytes
		if anew := ok && old.NoGrow != "" && w.NoGrow == ""; other || anew {
			v.change(plan.RetryExpand)
		}
	}
	if !ok || !sameWish(old.VolumeWant, w.VolumeWant) {
		l.reset(w.ID)
	}
	v.wants[uid], v.want = w, nil
}

// change applies f, which changes only the pacing of calls, to the volume's record. That
// needs no durable write.
func (v *volume) change(f func(state.Volume) state.Volume) {
	if v != nil && v.record != nil {
		v.record = new(f(*v.record))
	}
}

// sameWish reports whether a call that failed for a would fail for b. It ignores the progress
// of an expansion in the cluster: an external-resizer answers each failure of the node with
// a new request of the same size, within 20 ms.
func sameWish(a, b *state.VolumeWant) bool {
	return a.Revision == b.Revision && a.Hold == b.Hold && a.Unattached == b.Unattached && a.SizeBytes == b.SizeBytes &&
		a.Spec.Equal(&b.Spec) && a.Mount.Equal(b.Mount)
}

// removeWish removes one pod's wish for a volume.
func (l *loop) removeWish(uid state.PodUID, id state.VolumeID) {
	if v := l.volumes[id]; v != nil {
		delete(v.wants, uid)
		v.want = nil
		v.stopUnwanted()
	}
	l.dirty.push(id)
}

// markPod marks every volume whose record names the pod to be planned, since the pod
// decides whether its mounts are kept.
func (l *loop) markPod(uid state.PodUID) {
	for _, id := range l.pods.volumes[uid] {
		l.dirty.push(id)
	}
	l.changedPods.push(uid)
}

func (l *loop) sourceSynced(name string) {
	if !l.gates.unsynced.has(name) {
		return
	}
	delete(l.gates.unsynced, name)
	l.log.Info("source has listed its pods", "source", name, "waiting", len(l.gates.unsynced))
	if len(l.gates.unsynced) == 0 {
		l.replanAll()
	}
}

func (l *loop) driverUp(info DriverInfo, impl Driver) {
	d := l.driver(info.Name)
	d.driver, d.info = impl, &info
	d.status.DriverInfo, d.status.Up, d.status.Problem, d.status.Since = info, true, "", time.Now()
	if d.apart != nil {
		d.status.Attach = d.apart.attaches
	}
	d.status.Generation++
	d.pace, d.running.More, d.running.First = plan.Pace{}, 0, 0 // the estimate was for another process
	l.log.Info("driver is up", "driver", info.Name, "version", info.Version, "generation", d.status.Generation)
	for id := range d.keys {
		l.volumes[id].change(plan.RetryExpandOnNewDriver)
		l.reset(id)
	}
}

func (l *loop) driverDown(name state.DriverName, why string) {
	d := l.driver(name)
	if d.status.Up {
		l.log.Info("driver is down", "driver", name, "reason", why)
		d.status.Since = time.Now()
	}
	d.status.Up, d.status.Problem = false, "driver "+string(name)+" is not registered: "+why
	for id := range d.keys {
		l.dirty.push(id)
	}
}

// reset ends every pause of a volume and marks it to be planned. The call in flight may
// still fail for the reason that is now cured, so no pause follows that failure either.
func (l *loop) reset(id state.VolumeID) {
	l.dirty.push(id)
	v := l.volumes[id]
	if v == nil {
		return
	}
	v.dead = deadMount{} // the next Publish looks again
	if v.call != nil {
		v.call.cured = true
	}
	v.change(plan.Reset)
}

func (l *loop) reportedInUse(ids []state.VolumeID) {
	now := set[state.VolumeID]{}
	for _, id := range ids {
		now[id] = struct{}{}
		if !l.gates.reported.has(id) {
			l.dirty.push(id)
		}
	}
	l.gates.reported = now
}
