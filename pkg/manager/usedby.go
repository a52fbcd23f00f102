package manager

import (
	"fmt"
	"maps"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// UsedBy says what on this node uses a persistent volume, or may use it, so that it must
// not be deleted, such as "pod default/web"; "" if nothing does. name is the name of its
// PersistentVolume; stages are the paths at which it may be staged.
//
// It may be called by any goroutine.
func (m *Manager) UsedBy(id state.VolumeID, name string, stages ...string) string {
	v, known := m.Volume(id)
	if known && (v.Quarantined != "" || !v.Volume.Clear()) {
		for _, uid := range slices.Sorted(maps.Keys(v.Volume.Mounts)) {
			pod := v.Volume.Mounts[uid].Pod
			return "pod " + pod.Namespace + "/" + pod.Name
		}
		return "this node, which has it attached or staged"
	}
	u := m.Unrecorded()
	if u.Unknown {
		return "possibly a pod: the mount table has not been read yet"
	}
	for _, stage := range stages {
		for _, place := range u.ofVolume(stage, name) {
			return fmt.Sprintf("possibly a pod whose record the journal lost: something is mounted at %s", place.Path)
		}
	}
	return ""
}
