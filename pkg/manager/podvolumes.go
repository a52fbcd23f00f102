package manager

import (
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// podVolumes are the volumes of each pod that has some, in no order. Nearly every
// pod has a few, and a map of one has room for eight.
type podVolumes map[state.PodUID][]state.VolumeID

func (p podVolumes) add(uid state.PodUID, id state.VolumeID) {
	if ids := p[uid]; !slices.Contains(ids, id) {
		p[uid] = append(ids, id)
	}
}

// remove forgets a pod with its last volume, and reports whether that was so.
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
