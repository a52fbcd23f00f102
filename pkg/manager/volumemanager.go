package manager

import (
	"cmp"
	"maps"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The methods below have the names of the kubelet's VolumeManager, so that a reader who
// knows that one knows this one. Each comment says how the method differs from the kubelet's.

// GetMountedVolumesForPod returns, by the pod's own name for it, every volume
// that the pod wants and has: present, staged if the driver stages, and seen
// by the kernel. Like the kubelet's, it leaves out uncertain mounts.
func (m *Manager) GetMountedVolumesForPod(uid state.PodUID) map[string]MountedVolume {
	m.snapshot.mu.RLock()
	defer m.snapshot.mu.RUnlock()
	mounted := map[string]MountedVolume{}
	p := m.snapshot.pods[uid]
	if p.Stopped {
		return mounted
	}
	for _, vw := range p.Volumes {
		v := m.snapshot.volume(vw.ID)
		if s := podVolume(uid, vw, v); s.Mounted {
			for _, name := range vw.Names {
				mounted[name] = MountedVolume{
					Name: name, HostPath: s.HostPath, Mode: s.Mode, ReadOnly: s.ReadOnly, SpecName: v.Volume.Spec.Name,
					Driver: s.Driver,
				}
			}
		}
	}
	return mounted
}

// GetPossiblyMountedVolumesForPod returns, sorted, the volumes that the pod
// may have mounted: those in any phase but absent.
func (m *Manager) GetPossiblyMountedVolumesForPod(uid state.PodUID) []state.VolumeID {
	m.snapshot.mu.RLock()
	defer m.snapshot.mu.RUnlock()
	var ids []state.VolumeID
	for _, id := range m.snapshot.byPod[uid] {
		if m.snapshot.volumes[id].Volume.Mounts[uid].Phase != state.Absent {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// HasPossiblyMountedVolumesForPod reports whether the pod may have a volume mounted.
func (m *Manager) HasPossiblyMountedVolumesForPod(uid state.PodUID) bool {
	return len(m.GetPossiblyMountedVolumesForPod(uid)) > 0
}

// GetExtraSupplementalGroupsForPod returns, sorted, the groups that the pod's mounted
// volumes ask for (PersistentVolume annotation pv.beta.kubernetes.io/gid), without those
// that the pod itself names.
func (m *Manager) GetExtraSupplementalGroupsForPod(uid state.PodUID) []int64 {
	m.snapshot.mu.RLock()
	defer m.snapshot.mu.RUnlock()
	p := m.snapshot.pods[uid]
	extra := map[int64]bool{}
	for _, vw := range p.Volumes {
		if vw.GID != nil && !slices.Contains(p.SupplementalGroups, *vw.GID) &&
			podVolume(uid, vw, m.snapshot.volume(vw.ID)).Mounted {
			extra[*vw.GID] = true
		}
	}
	return slices.Sorted(maps.Keys(extra))
}

// GetVolumesInUse returns, sorted, every persistent volume that is wanted or that may
// have anything on the node (rule 3), including those whose record cannot be read. It is
// the content of node.status.volumesInUse. A volume leaves it only after Unstage has
// succeeded, and never because its state is unknown.
func (m *Manager) GetVolumesInUse() []state.VolumeID {
	m.snapshot.mu.RLock()
	defer m.snapshot.mu.RUnlock()
	var ids []state.VolumeID
	for id, v := range m.snapshot.volumes {
		spec := v.Volume.Spec
		if v.Quarantined != "" || !spec.Builtin && !spec.Ephemeral && (v.Volume.InUse() || len(v.Wanted) > 0) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// AttachedInUse returns, sorted by ID, the volumes in use that the cluster's controller
// attaches, including those of built-in kinds. The record and the wishes decide, not the
// current CSIDriver: a volume that was begun as attached stays in the list until it is
// unstaged.
//
// all is false while there may be another such volume whose record the journal lost.
func (m *Manager) AttachedInUse() (used []state.InUse, all bool) {
	m.snapshot.mu.RLock()
	defer m.snapshot.mu.RUnlock()
	for id, name := range m.snapshot.attached {
		used = append(used, state.InUse{ID: id, Name: name})
	}
	slices.SortFunc(used, func(a, b state.InUse) int { return cmp.Compare(a.ID, b.ID) })
	return used, !m.snapshot.unrecorded.Unknown && len(m.snapshot.unrecorded.Places) == 0
}

// attachedAs returns the name under which the cluster's controller attaches v; "" if no
// controller attaches it.
func (l *loop) attachedAs(v *volume) string {
	if v.quarantined != "" {
		return state.UnreadableAttachedAs(v.id)
	}
	if name := plan.AttachedAs(state.Want{}, v.recordOrEmpty()); name != "" {
		return name // nearly always, and without merging the wishes
	}
	return plan.AttachedAs(l.mergedWish(v), v.recordOrEmpty())
}

// ReconcilerStatesHasBeenSynced reports whether GetVolumesInUse may be published: every
// source has listed its pods and every record has been compared with the kernel. The
// kubelet's waits for one round of its reconciler instead.
func (m *Manager) ReconcilerStatesHasBeenSynced() bool {
	m.snapshot.mu.RLock()
	defer m.snapshot.mu.RUnlock()
	return m.snapshot.synced && m.snapshot.looked
}

// VolumeIsAttached reports whether the volume has a record here and is attached, or needs
// no attachment. The kubelet's also returns true for volumes that need none.
func (m *Manager) VolumeIsAttached(id state.VolumeID) bool {
	v, ok := m.Volume(id)
	if !ok || v.Volume.Clear() {
		return false
	}
	return !v.Volume.Needs.Attach || v.Volume.Attach.Phase == state.Present
}
