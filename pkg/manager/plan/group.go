package plan

import (
	"cmp"
	"strconv"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// groupOf returns the pod's fsGroup as CSI's volume_mount_group; "" if it has none.
func groupOf(m state.MountSpec) string {
	if m.FSGroup == nil {
		return ""
	}
	return strconv.FormatInt(*m.FSGroup, 10)
}

// groupFor returns the group that the driver gives the volume (CSI 1.13, volume_mount_group).
// It is the same for the stage and all pods, since a volume must not be published with
// different capabilities: has if a pod asks for that, else the group of the first pod by
// UID that asks for one.
func groupFor(wanted map[state.PodUID]state.WantMount, has string, f Facts) (group string) {
	switch {
	case !f.Driver.Up:
		return has // the driver's abilities are unknown
	case !f.Driver.MountGroup:
		return ""
	}
	for _, pod := range byUID(wanted) {
		asked := groupOf(wanted[pod].MountSpec)
		if asked != "" && asked == has {
			return asked
		}
		group = cmp.Or(group, asked)
	}
	return group
}
