package manager

import (
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// selinuxStatus returns the status of the SELinux labels that pods ask for; nil if the volume
// cannot have one.
func (v *volume) selinuxStatus(spec *state.Spec) *SELinuxStatus {
	var wanted map[state.PodUID]string
	applied := false
	for uid, vw := range v.wants {
		if vw.SELinux == nil || vw.SELinux.Fault == state.SELinuxOptions {
			continue // the runtime rejects the pod
		}
		if wanted == nil {
			wanted = map[state.PodUID]string{}
		}
		wanted[uid] = vw.SELinux.Label
		applied = vw.SELinux.Applied
	}
	if wanted == nil {
		return nil
	}
	label, conflicts := plan.Labels(wanted, spec.SELinuxLabel)
	return &SELinuxStatus{Label: label, Applied: applied, Conflicts: conflicts}
}
