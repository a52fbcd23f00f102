package server

import (
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Retry returns the pacing and the last failure of the fact's calls.
func (f Fact) Retry() RetryStatus { return f.Failed.Value() }

// Value returns *r, or the zero value if r is nil.
func (r *RetryStatus) Value() RetryStatus {
	if r == nil {
		return RetryStatus{}
	}
	return *r
}

// Failure returns the last failure as one sentence with its gRPC code.
func (r RetryStatus) Failure() string { return Failure(r.retry()) }

// Value returns *s, or the zero value if s is nil because the spec is unknown.
func (s *Spec) Value() Spec {
	if s == nil {
		return Spec{}
	}
	return *s
}

// Clear reports whether the volume has certainly left nothing on the host.
func (v Volume) Clear() bool { return v.Attach.Phase == state.Absent && !v.InUse() }

// Unmounted reports whether every pod's mount is absent.
func (v Volume) Unmounted() bool {
	for _, m := range v.Mounts {
		if m.Phase != state.Absent {
			return false
		}
	}
	return true
}

// InUse reports whether the effect of any node call may still exist.
func (v Volume) InUse() bool { return v.Stage.Phase != state.Absent || !v.Unmounted() }

// String returns the call's verb and its pod, if any.
func (o Op) String() string { return plan.Op{Kind: o.Kind, Pod: o.Pod}.String() }

// Unresolved reports whether the daemon does not know what the pod now wants under this
// name. What is mounted under it stays meanwhile.
func (v PodVolumeStatus) Unresolved() bool { return v.Step == plan.Resolve.String() }

// Line describes the volume's state at time now in one line.
func (v PodVolumeStatus) Line(now time.Time) string {
	var step plan.Kind
	_ = step.UnmarshalText([]byte(v.Step)) // the line leaves out a step that only another version knows
	return manager.PodVolumeStatus{
		Names: v.Names, Driver: v.Driver, Mounted: v.Mounted, Phase: v.Phase, HostPath: v.HostPath, Step: step,
		Since: v.Since, BlockedBy: v.BlockedBy, Retry: v.Retry.retry(), Drift: v.Drift,
	}.Line(now)
}
