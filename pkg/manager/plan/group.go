package plan

import (
	"strconv"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// groupOf is the pod's fsGroup as CSI has it; "" for none.
func groupOf(m state.MountSpec) string {
	if m.FSGroup == nil {
		return ""
	}
	return strconv.FormatInt(*m.FSGroup, 10)
}
