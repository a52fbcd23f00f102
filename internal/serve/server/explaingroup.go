package server

import (
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// explainFSGroup warns that the fsGroup of a pod is not applied to a volume that it has mounted. The rules are those
// of a CSIDriver's fsGroupPolicy: a record without an ownership has a policy other than File.
func (f Facts) explainFSGroup(e *Explanation, pod state.PodUID, id state.VolumeID) {
	v, _ := f.volume(id)
	m, spec := v.Volume.Mounts[pod], v.Volume.Spec.Value()
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
