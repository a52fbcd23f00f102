package manager

import (
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// podVolumes maps each pod that has volumes to their IDs, in no order. Most pods have few,
// so a slice takes less memory than a set, whose map has room for eight.
type podVolumes map[state.PodUID][]state.VolumeID

func (p podVolumes) add(uid state.PodUID, id state.VolumeID) {
	if ids := p[uid]; !slices.Contains(ids, id) {
		p[uid] = append(ids, id)
	}
}

// remove removes a volume of a pod, and reports whether it was the pod's last one.
func (p podVolumes) remove(uid state.PodUID, id state.VolumeID) (last bool) {
	ids := p[uid]
	i := slices.Index(ids, id)
	if i < 0 {
		return false
	}
	if last = len(ids) == 1; last {
		delete(p, uid)
	} else {
		p[uid] = slices.Delete(ids, i, i+1)
	}
	return last
}
