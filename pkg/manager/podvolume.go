package manager

import (
	"cmp"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Unresolved reports whether the volume that the pod wants could not be resolved. A volume
// that the pod has under this name is kept meanwhile.
func (s PodVolumeStatus) Unresolved() bool { return s.Step == plan.Resolve }

// podVolume returns the status of one volume of one pod. It is a pure function. An
// unresolved want has an ID only if the pod has a volume under its name.
func podVolume(uid state.PodUID, w state.VolumeWant, v *VolumeStatus) PodVolumeStatus {
	s := PodVolumeStatus{
		Names: w.Names, ID: w.ID, Driver: w.Spec.Driver, Claim: cmp.Or(w.Spec.Claim, w.Claim), Mode: w.Spec.Mode,
		ReadOnly: w.Mount.ReadOnly, SizeBytes: v.Volume.SizeBytes, SELinux: w.SELinux,
	}
	if w.Unresolved() && w.ID == "" {
		s.Step, s.BlockedBy, s.Cause, s.Unread = plan.Resolve, w.Problem, w.Cause, w.Unread
		return s
	}
	m := v.Volume.Mounts[uid]
	s.Phase = m.Phase
	if m.Phase == state.Present {
		s.HostPath, s.ReadOnly, s.ContentAt = hostPath(m), m.ReadOnly, m.RevisionAt
		s.Mounted = v.mounted(m)
		s.Drift = cmp.Or(v.Drift[m.Target], v.Drift[v.Volume.Spec.StagePath])
	}
	if m.Phase != state.Absent {
		s.Retry = m.Retry()
	}
	switch {
	case w.Unresolved(): // whatever call is in flight for the volume that the pod has
		s.Step, s.BlockedBy, s.Cause, s.Unread, s.Retry = plan.Resolve, w.Problem, w.Cause, w.Unread, state.Retry{}
	case v.Quarantined != "":
		s.Code = plan.NoRecord
		s.BlockedBy = "the volume's record in the journal cannot be read: " + v.Quarantined
	case v.Call.Kind != plan.None:
		s.step(v, v.Call.Kind, v.Call.Pod == "" || v.Call.Pod == uid)
		if v.Call.Pod != "" && v.Call.Pod != uid && !s.Mounted {
			s.Code = plan.Earlier
			s.BlockedBy = "another call for the volume is in flight: " + v.Call.String()
		}
	case v.Held.Waits():
		mine := v.Held.Pod == "" || v.Held.Pod == uid
		s.step(v, v.Held.Step, mine)
		if mine {
			s.Code, s.BlockedBy = v.Held.Code, v.Held.Reason
		} else if !s.Mounted {
			s.Code = plan.Earlier
			s.BlockedBy = plan.Op{Kind: v.Held.Step, Pod: v.Held.Pod}.String() + " comes first: " + v.Held.Reason
		}
	case v.emptied:
		s.Code, s.BlockedBy = plan.Emptied, reasonEmptied
	}
	return s
}

// mounted reports whether a pod can use its mount of the volume. While the node is being emptied, no
// container may be started on what is still mounted.
func (s *VolumeStatus) mounted(m state.Mount) bool {
	return m.Phase == state.Present && !m.Waits && s.Quarantined == "" && !s.emptied &&
		(!s.Volume.Needs.Stage || s.Volume.Stage.Phase == state.Present)
}

// step sets the step, its time and its pacing. A pod that can use its mount is not concerned
// by a step for another pod.
func (s *PodVolumeStatus) step(v *VolumeStatus, k plan.Kind, mine bool) {
	if !mine && s.Mounted {
		return
	}
	s.Step, s.Since = k, v.Since
	switch k {
	case plan.Attach, plan.Detach:
		s.Retry = v.Volume.Attach.Retry()
	case plan.Stage, plan.Unstage:
		s.Retry = v.Volume.Stage.Retry()
	case plan.Expand:
		s.Retry = v.Volume.ExpandFailed.Value()
	}
}

// hostPath returns the path at which the container runtime finds a mount.
func hostPath(m state.Mount) string { return cmp.Or(m.DevicePath, m.HostPath, m.Target) }

func comparePods(a, b PodStatus) int {
	return cmp.Or(cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name),
		cmp.Compare(a.Pod.UID, b.Pod.UID))
}
