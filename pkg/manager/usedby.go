package manager

import (
	"fmt"
	"maps"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// UsedBy says who on this node has a persistent volume, or may have it: "pod
// default/web", or what else keeps it from being deleted; "" where it may be. name is
// that of its PersistentVolume; stages are the paths at which it may be staged.
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
		return "a pod perhaps: it is not known yet what is mounted"
	}
	for _, stage := range stages {
		for _, place := range u.of(stage, name) {
			return fmt.Sprintf("perhaps a pod whose record the journal lost: something is mounted at %s", place.Path)
		}
	}
	return ""
}
