package server

import (
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// explainFSGroup says which files of a volume that a pod has mounted could not be given to its fsGroup, or warns that
// the fsGroup is not applied. The rules are those of a CSIDriver's fsGroupPolicy: a record without an ownership has a
// policy other than File.
func (f Facts) explainFSGroup(e *Explanation, pod state.PodUID, id state.VolumeID) {
	v, _ := f.volume(id)
	m, spec := v.Volume.Mounts[pod], v.Volume.Spec.Value()
	if m.GroupFailed != "" && m.FSGroup != nil {
		e.worsen(Stuck)
		e.add("but", "fsGroup %d is not applied to all files: %s", *m.FSGroup, m.GroupFailed)
		e.add("next", "the files that failed are tried again at the pod's next mount of the volume")
		e.add("you can", "give them to group %d where they are stored, if the pod needs them: the server may squash root, "+
			"or the files may be immutable", *m.FSGroup)
		return
	}
	at := slices.IndexFunc(f.Drivers, func(d manager.DriverStatus) bool { return d.Name == spec.Driver })
	switch {
	case m.FSGroup == nil || m.Ownership != "" || m.ReadOnly || spec.Builtin || spec.Mode == state.Block:
		return
	case at < 0 || !f.Drivers[at].Up || f.Drivers[at].MountGroup: // the driver applies it, or may do so
		return
	}
	why, policy := "", "not File"
	one := spec.Ephemeral || slices.Contains(spec.AccessModes, state.ReadWriteOnce) ||
		slices.Contains(spec.AccessModes, state.ReadWriteOncePod)
	switch {
	case spec.FSType == "":
		why = "the volume names no fsType, and "
	case !one:
		why = "the volume's access modes have no ReadWriteOnce, and "
	default:
		policy = "None"
	}
	e.add("warning", "fsGroup %d is not applied: %sthe fsGroupPolicy of CSIDriver %s is %s", *m.FSGroup, why, spec.Driver,
		policy)
}

// groupless returns the pods with a mount whose files could not all be given to their fsGroup.
func (f Facts) groupless() map[state.PodUID]bool {
	pods := map[state.PodUID]bool{}
	for _, v := range f.Volumes {
		for uid, m := range v.Volume.Mounts {
			if m.GroupFailed != "" {
				pods[uid] = true
			}
		}
	}
	return pods
}
