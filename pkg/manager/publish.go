package manager

import (
	"maps"
	"reflect"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const reasonLook = "the volume's record is being compared with the kernel's mounts"

// publish writes to the snapshot what changed since the last call.
func (l *loop) publish() {
	snap := l.m.snapshot
	snap.mu.Lock()
	defer snap.mu.Unlock()
	for id, ok := l.changed.pop(); ok; id, ok = l.changed.pop() {
		l.publishVolume(snap, id)
	}
	for uid, ok := l.changedPods.pop(); ok; uid, ok = l.changedPods.pop() {
		was, had := snap.pods[uid]
		is, listed := l.pods.listed[uid]
		if listed {
			snap.pods[uid] = is
		} else {
			delete(snap.pods, uid)
		}
		snap.wake(uid)
		if had != listed || !reflect.DeepEqual(was, is) {
			snap.mark(uid)
		}
	}
	l.publishDrivers(snap)
	l.publishUnrecorded(snap)
	l.publishLeft(snap)
	snap.synced, snap.looked, snap.shown, snap.found = len(l.gates.unsynced) == 0, l.looking == 0, l.taken, l.found
	if snap.changed != nil {
		close(snap.changed)
		snap.changed = nil
	}
}

// sendReplies sends the replies of this round. The snapshot is published before, since callers
// may read it next.
func (l *loop) sendReplies() {
	for _, give := range l.replies {
		give()
	}
	l.replies = nil
}

// reportGone calls OnGone and OnUnrecorded. The snapshot is published before, since they may read it.
func (l *loop) reportGone() {
	for _, id := range l.gone {
		l.cfg.OnGone(id)
	}
	l.gone = nil
	if l.unrecordedChanged && l.cfg.OnUnrecorded != nil {
		l.cfg.OnUnrecorded()
	}
	l.unrecordedChanged = false
}

// publishVolume publishes one volume's status, and marks the pods that a change concerns.
func (l *loop) publishVolume(snap *snapshot, id state.VolumeID) {
	was := snap.volume(id)
	is, there := l.volumeStatus(id, was.Wanted)
	mark := snap.mark
	if reflect.DeepEqual(*was, is) {
		mark = func(state.PodUID) {}
	}
	for uid := range was.pods() {
		mark(uid)
		if !is.concerns(uid) {
			snap.byPod.remove(uid, id)
			l.changedPods.push(uid)
		}
	}
	for uid := range is.pods() {
		mark(uid)
		snap.byPod.add(uid, id)
		if was.forPod(uid) != is.forPod(uid) {
			l.changedPods.push(uid)
		}
	}
	if !there {
		delete(snap.volumes, id)
		delete(snap.attached, id)
		return
	}
	if name := l.attachedAs(l.volumes[id]); name != "" {
		snap.attached[id] = name
	} else {
		delete(snap.attached, id)
	}
	*was, snap.volumes[id] = is, was
}

// volumeStatus returns a volume's status, and whether the volume is known or wanted.
func (l *loop) volumeStatus(id state.VolumeID, wanted []state.PodUID) (VolumeStatus, bool) {
	v := l.volumes[id]
	if v == nil || v.record == nil && len(v.wants) == 0 && v.quarantined == "" {
		return VolumeStatus{}, false
	}
	r := v.recordOrEmpty()
	if v.record == nil {
		if r.Spec = l.mergedWish(v).Spec; r.Spec == nil {
			r.Spec = &state.Spec{} // the record cannot be read
		}
	}
	s := VolumeStatus{
		Volume: r, Wanted: v.wantedBy(wanted), Quarantined: v.quarantined, SELinux: v.selinuxStatus(r.Spec),
		Drift: l.shownDrift(v), emptied: l.gates.drain == DrainEmpty,
	}
	if v.held != nil {
		s.Held, s.Since = v.held.Held, v.held.since
	}
	s.Unmount = plan.ProgressOf(r, v.op(), l.cfg.Ladders.Of(r.Spec.Driver))
	// A look at a volume that all its pods can use keeps no reader waiting, and is no news.
	if c := v.call; c != nil && (c.op.Kind != plan.None || !s.served()) {
		s.Call, s.Since, s.Progress, s.Held = c.op, c.since, c.progress, plan.Held{}
		if c.op.Kind == plan.None {
			s.Held.Code, s.Held.Reason = plan.Looking, reasonLook
		}
	}
	return s, true
}

// wantedBy returns the pods that want a volume, sorted. It returns was if that still holds.
func (v *volume) wantedBy(was []state.PodUID) []state.PodUID {
	left := func(uid state.PodUID) bool { _, still := v.wants[uid]; return !still }
	if len(v.wants) == len(was) && !slices.ContainsFunc(was, left) {
		return was
	}
	return slices.Sorted(maps.Keys(v.wants))
}

// served reports whether all pods that have the volume want it and can use it.
func (s *VolumeStatus) served() bool {
	for uid := range s.pods() {
		if f := s.forPod(uid); !f.wanted || !f.mounted {
			return false
		}
	}
	return len(s.Wanted) > 0
}
