package manager

import (
	"fmt"
	"maps"
	"slices"
	"strings"

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
	if paths := m.leftOf(name, stages); len(paths) > 0 {
		return fmt.Sprintf("possibly a pod: without a record, which was forgotten, something is mounted at %s; see "+
			"csi-volmgr who %s, end that, then: umount %s", strings.Join(paths, ", "), paths[0], strings.Join(paths, " "))
	}
	return ""
}

// leftOf returns where the volume is mounted without a record because an operator had it forgotten: the pods' paths,
// then the stages.
func (m *Manager) leftOf(name string, stages []string) (paths []string) {
	m.snapshot.mu.RLock()
	left := m.snapshot.left
	m.snapshot.mu.RUnlock()
	var staged []string
	for _, p := range left {
		switch {
		case slices.Contains(stages, p.Path):
			staged = append(staged, p.Path)
		case p.Name == name && name != "":
			paths = append(paths, p.Path)
		}
	}
	return append(paths, staged...)
}
