package manager

import "github.com/csi-volmgr/csi-volmgr/pkg/state"

// takenPlaces returns the other volumes that are, or may be, at the paths at which w wants v, by
// pod; that of "" is at the stage path. Paths contain the PersistentVolume's name: one that replaces
// another of its name may be another volume at the same target and, for a raw block volume, at the
// same stage path.
func (l *loop) takenPlaces(v *volume, r state.Volume, w state.Want) (taken map[state.PodUID]state.VolumeID) {
	add := func(pod state.PodUID, by state.VolumeID) {
		if taken == nil {
			taken = map[state.PodUID]state.VolumeID{}
		}
		taken[pod] = by
	}
	for uid, wm := range w.Pods {
		for _, id := range l.pods.volumes[uid] {
			m := l.volumes[id].record.Mounts[uid]
			if id != v.id && m.Phase != state.Absent && m.Target == wm.Target && m.HostPath == "" { // a hostPath is not mounted
				add(uid, id)
			}
		}
		if id, repeated := l.unpublishing[wm.Target]; repeated && id != v.id {
			add(uid, id)
		}
	}
	if len(w.Pods) > 0 && w.Spec.Mode == state.Block && r.Stage.Phase == state.Absent {
		for _, id := range l.staged[w.Spec.StagePath] {
			if id != v.id && l.volumes[id].record.Stage.Phase != state.Absent {
				add("", id)
			}
		}
	}
	if taken != nil {
		l.displaced[v.id] = struct{}{}
	}
	return taken
}

// blockStage returns the path under which l.staged has a record; "" if it has not.
func blockStage(r *state.Volume) string {
	if r.Spec == nil || r.Spec.Mode != state.Block {
		return ""
	}
	return r.Spec.StagePath
}

// noteStage updates l.staged for a record that replaces was; an empty one means none.
func (l *loop) noteStage(id state.VolumeID, was, is *state.Volume) {
	before, now := blockStage(was), blockStage(is)
	if before == now {
		return
	}
	if before != "" {
		l.staged.remove(before, id)
	}
	if now != "" {
		l.staged.add(now, id)
	}
}

// planDisplaced marks the volumes to be planned that wait for another volume to leave their path.
func (l *loop) planDisplaced() {
	for id := range l.displaced {
		l.dirty.push(id)
	}
	clear(l.displaced)
}
