package manager

import (
	"slices"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// setPod takes over what a pod wants and marks the volumes that this touches.
func (l *loop) setPod(p state.PodWant) {
	uid := p.Pod.UID
	old, _ := l.pods.get(uid)
	l.pods[uid] = &p
	if !p.Stopped {
		l.unask(uid)
	}
	l.arrivals++
	now := map[state.VolumeID]bool{}
	if p.Stopped {
		l.leave(uid)
	} else {
		for i := range p.Volumes {
			if vw := &p.Volumes[i]; vw.Problem == "" {
				now[vw.ID] = true
				l.wish(uid, wanted{vw, l.arrivals})
			}
		}
	}
	for _, vw := range old.Volumes {
		if vw.Problem == "" && !now[vw.ID] {
			l.unwish(uid, vw.ID)
		}
	}
	l.touchPod(uid)
}

// removePod takes back what a pod wanted.
func (l *loop) removePod(uid state.PodUID) {
	p, ok := l.pods[uid]
	if !ok {
		return
	}
	delete(l.pods, uid)
	l.leave(uid)
	for _, vw := range p.Volumes {
		if vw.Problem == "" {
			l.unwish(uid, vw.ID)
		}
	}
	l.touchPod(uid)
}

// leave ends a pod's life: what it has goes, although a pod of the same UID may
// be listed again before that was begun.
func (l *loop) leave(uid state.PodUID) {
	if len(l.has[uid]) == 0 || len(l.unsynced) > 0 || plan.Keep(l.podFacts(uid, nil)) != "" {
		return
	}
	for _, id := range slices.Clone(l.has[uid]) {
		v := plan.Leave(*l.mem[id], uid)
		l.setRecord(&v)
		l.dirty.push(id)
	}
}

// wish notes one pod's wish. A wish that changed may have cured what failed.
func (l *loop) wish(uid state.PodUID, w wanted) {
	l.dirty.push(w.ID)
	pods := l.wants[w.ID]
	if pods == nil {
		pods = map[state.PodUID]wanted{}
		l.wants[w.ID] = pods
	}
	if old, ok := pods[uid]; !ok || !sameWish(old.VolumeWant, w.VolumeWant) {
		l.reset(w.ID)
	}
	pods[uid] = w
	delete(l.together, w.ID)
}

func sameWish(a, b *state.VolumeWant) bool {
	return a.Revision == b.Revision && a.Hold == b.Hold && a.Unattached == b.Unattached && a.SizeBytes == b.SizeBytes && a.HaveBytes == b.HaveBytes && a.Grown == b.Grown && a.NoGrow == b.NoGrow &&
		a.Spec.Equal(&b.Spec) && a.Mount.Equal(b.Mount)
}

func (l *loop) unwish(uid state.PodUID, id state.VolumeID) {
	delete(l.wants[id], uid)
	if len(l.wants[id]) == 0 {
		delete(l.wants, id)
	}
	delete(l.together, id)
	l.stopUnwanted(id)
	l.dirty.push(id)
}

// touchPod marks every volume whose record names the pod: what is kept for its
// sake depends on it.
func (l *loop) touchPod(uid state.PodUID) {
	for _, id := range l.has[uid] {
		l.dirty.push(id)
	}
	l.changedPods.push(uid)
}

func (l *loop) sourceSynced(name string) {
	if !l.unsynced.has(name) {
		return
	}
	delete(l.unsynced, name)
	l.log.Info("source has spoken", "source", name, "waiting", len(l.unsynced))
	if len(l.unsynced) == 0 {
		for id := range l.mem {
			l.dirty.push(id)
		}
	}
}

func (l *loop) driverUp(info DriverInfo, impl Driver) {
	d := l.driver(info.Name)
	d.driver, d.info = impl, &info
	d.status.DriverInfo, d.status.Up, d.status.Problem, d.status.Since = info, true, "", time.Now()
	d.status.Generation++
	d.pace, d.running.More, d.running.First = plan.Pace{}, 0, 0 // what another process could do says nothing of this one
	l.log.Info("driver is up", "driver", info.Name, "version", info.Version, "generation", d.status.Generation)
	for id := range d.keys {
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

// reset ends every pause of a volume and plans it. The call in flight may fail
// yet from what is cured by now: no pause follows that failure either.
func (l *loop) reset(id state.VolumeID) {
	delete(l.dead, id) // the next Publish looks again
	if c, busy := l.busy[id]; busy {
		c.cured = true
		l.busy[id] = c
	}
	if was, ok := l.mem[id]; ok {
		v := plan.Reset(*was)
		l.mem[id] = &v // pacing needs no durable write
	}
	l.dirty.push(id)
}

func (l *loop) reportedInUse(ids []state.VolumeID) {
	now := set[state.VolumeID]{}
	for _, id := range ids {
		now[id] = struct{}{}
		if !l.reported.has(id) {
			l.dirty.push(id)
		}
	}
	l.reported = now
}
