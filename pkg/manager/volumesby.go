package manager

import (
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// volumesBy maps each key that has volumes, as a pod, to their IDs, in no order. Most keys have
// few, so a slice takes less memory than a set, whose map has room for eight.
type volumesBy[K comparable] map[K][]state.VolumeID

func (b volumesBy[K]) add(key K, id state.VolumeID) {
	if ids := b[key]; !slices.Contains(ids, id) {
		b[key] = append(ids, id)
	}
}

// remove removes a volume of key, and reports whether it was the key's last one.
func (b volumesBy[K]) remove(key K, id state.VolumeID) (last bool) {
	ids := b[key]
	i := slices.Index(ids, id)
	if i < 0 {
		return false
	}
	if last = len(ids) == 1; last {
		delete(b, key)
	} else {
		b[key] = slices.Delete(ids, i, i+1)
	}
	return last
}
