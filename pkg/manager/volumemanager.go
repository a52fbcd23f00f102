package manager

import (
	"cmp"
	"maps"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The methods below are those of the kubelet's VolumeManager under their own
// names, so that a reader who knows that one knows this one. Each says where it differs.

// GetMountedVolumesForPod returns, by the pod's own name for it, every volume
// that the pod wants and has: present, staged where the driver stages, and seen
// by the kernel. What is uncertain is left out, as the kubelet's does.
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
// may have mounted, whatever the phase.
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

// HasPossiblyMountedVolumesForPod reports whether there is one.
func (m *Manager) HasPossiblyMountedVolumesForPod(uid state.PodUID) bool {
	return len(m.GetPossiblyMountedVolumesForPod(uid)) > 0
}

// GetExtraSupplementalGroupsForPod returns, sorted and without those that the
// pod names itself, the groups that its mounted volumes ask for
// (PersistentVolume annotation pv.beta.kubernetes.io/gid).
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

// GetVolumesInUse returns, sorted, every persistent volume that is wanted or of
// which anything may be on the node (rule 3). A record that cannot be read
// counts. It is what node.status.volumesInUse has to say; a volume leaves it
// only after Unstage succeeded, and never for lack of knowledge.
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

// AttachedInUse returns, sorted by id, those of GetVolumesInUse that a controller of
// the cluster attaches, and the built-in kinds' among them. The record and the
// wishes decide, not the CSIDriver of today: what was begun as attached stays in
// the list until it is unstaged.
//
// all is false while the journal may have lost the record of another one.
func (m *Manager) AttachedInUse() (used []state.InUse, all bool) {
	m.snapshot.mu.RLock()
	defer m.snapshot.mu.RUnlock()
	for id, name := range m.snapshot.attached {
		used = append(used, state.InUse{ID: id, Name: name})
	}
	slices.SortFunc(used, func(a, b state.InUse) int { return cmp.Compare(a.ID, b.ID) })
	return used, !m.snapshot.unrecorded.Unknown && len(m.snapshot.unrecorded.Places) == 0
}

// attachedAs is the name under which a controller of the cluster knows a volume that
// is wanted here, or that may have anything here; "" where none attaches it.
func (l *loop) attachedAs(v *volume) string {
	if v.quarantined != "" {
		return state.UnreadableAttachedAs(v.id)
	}
	if name := plan.AttachedAs(state.Want{}, v.recordOrEmpty()); name != "" {
		return name // as almost always: no wish is put together for it
	}
	return plan.AttachedAs(l.wished(v), v.recordOrEmpty())
}

// ReconcilerStatesHasBeenSynced reports whether GetVolumesInUse may be
// published: every source has spoken and every record was compared with the
// kernel. The kubelet's waits for one loop of its reconciler instead.
func (m *Manager) ReconcilerStatesHasBeenSynced() bool {
	m.snapshot.mu.RLock()
	defer m.snapshot.mu.RUnlock()
	return m.snapshot.synced && m.snapshot.looked
}

// VolumeIsAttached reports whether the volume is known on the node and attached
// as far as it needs to be. Like the kubelet's it is true of volumes that need
// no attachment.
func (m *Manager) VolumeIsAttached(id state.VolumeID) bool {
	v, ok := m.Volume(id)
	if !ok || v.Volume.Clear() {
		return false
	}
	return !v.Volume.Needs.Attach || v.Volume.Attach.Phase == state.Present
}
