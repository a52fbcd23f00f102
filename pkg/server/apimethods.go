package server

import (
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Retry is how the calls for the fact fare.
func (f Fact) Retry() RetryStatus { return f.Failed.Value() }

// Value is what r points to, and the zero value for none.
func (r *RetryStatus) Value() RetryStatus {
	if r == nil {
		return RetryStatus{}
	}
	return *r
}

// Failure is the last failure that r keeps, in one sentence with its gRPC code.
func (r RetryStatus) Failure() string { return Failure(r.retry()) }

// Value is what s points to, and the zero value for none: of what is not known.
func (s *Spec) Value() Spec {
	if s == nil {
		return Spec{}
	}
	return *s
}

// Clear reports whether nothing of the volume is on the host or may be.
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

// InUse reports whether anything that a node call made may be there.
func (v Volume) InUse() bool { return v.Stage.Phase != state.Absent || !v.Unmounted() }

// String is the call's verb, and its pod where it has one.
func (o Op) String() string { return plan.Op{Kind: o.Kind, Pod: o.Pod}.String() }

// Unresolved reports whether it is not known what the pod wants under this name by
// now. What it has under it, if anything, is kept meanwhile.
func (v PodVolumeStatus) Unresolved() bool { return v.Step == plan.Resolve.String() }

// Line says in one line how the volume stands at the moment now.
func (v PodVolumeStatus) Line(now time.Time) string {
	var step plan.Kind
	_ = step.UnmarshalText([]byte(v.Step)) // the line does not say a step that only another version has
	return manager.PodVolumeStatus{
		Names: v.Names, Driver: v.Driver, Mounted: v.Mounted, Phase: v.Phase, HostPath: v.HostPath, Step: step,
		Since: v.Since, BlockedBy: v.BlockedBy, Retry: v.Retry.retry(), Drift: v.Drift,
	}.Line(now)
}
