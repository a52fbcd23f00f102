package manager

import (
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// EndedCall is one call that ended, as [Config].OnCall is told of it: what was
// asked of whom, how long it took, and what came of it. It holds no secret.
type EndedCall struct {
	Volume state.VolumeID   `json:"volume"`
	Driver state.DriverName `json:"driver"`
	// Migrated: the volume's source is an in-tree plugin's, which the driver serves.
	Migrated bool      `json:"migrated,omitempty"`
	Op       plan.Kind `json:"op"`
	// Pod is set where the call was for one pod.
	Pod   state.PodUID `json:"pod,omitempty"`
	Began time.Time    `json:"began"`
	// TookNanos is how long it took, the look at the kernel included (ns).
	TookNanos time.Duration `json:"tookNanos"`
	// Code is the gRPC code's name; "" for OK, and where none was received.
	Code string `json:"code,omitempty"`
	// Error is the failure's text; "" for OK.
	Error string `json:"error,omitempty"`
	// Outcome says what the failure leaves known ("unknown", "none"); "" for OK.
	Outcome string `json:"outcome,omitempty"`
}

// tell reports a call that ended to whoever wants to know.
func (l *loop) tell(s *start, failure *state.CallError, began time.Time, took time.Duration) {
	if l.cfg.OnCall == nil {
		return
	}
	c := EndedCall{Volume: s.id, Driver: s.driver.status.Name, Migrated: s.begun.Spec.Migrated, Op: s.op.Kind, Pod: s.op.Pod, Began: began, TookNanos: took}
	if failure != nil {
		c.Code, c.Error, c.Outcome = failure.Code, failure.Error(), failure.Outcome.String()
	}
	l.cfg.OnCall(c)
}
