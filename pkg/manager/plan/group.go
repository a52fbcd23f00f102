package plan

import (
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
