package manager

import (
	"errors"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// EndedCall is one driver call that ended, for [Config].OnCall: the driver, the
// volume, how long the call took, and its outcome. It holds no secret.
type EndedCall struct {
	Volume state.VolumeID   `json:"volume"`
	Driver state.DriverName `json:"driver"`
	// Migrated: the volume's source is an in-tree plugin's, which the driver serves.
	Migrated bool      `json:"migrated,omitempty"`
	Op       plan.Kind `json:"op"`
	// Step is how an Unpublish or Unstage unmounted before the driver was called;
	// "" where it left that to the driver.
	Step state.UnmountStep `json:"step,omitempty"`
	// SizeBytes is the size that an Expand asked for.
	SizeBytes int64 `json:"sizeBytes,omitempty"`
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
	// NoEffect: the driver answered OK, and the kernel does not show the effect
	// ([ErrNoEffect]).
	NoEffect bool `json:"noEffect,omitempty"`
	// Of is the record during the call.
	Of state.Volume `json:"-"`
	// Retry is, of a failure, what the record says of it by then.
	Retry state.Retry `json:"-"`
}

// reportCall reports a call that ended to [Config].OnCall.
func (l *loop) reportCall(s *start, failure *state.CallError, began time.Time, took time.Duration) {
	if l.cfg.OnCall == nil {
		return
	}
	c := EndedCall{
		Volume: s.id, Driver: s.driver.status.Name, Migrated: s.begun.Spec.Migrated, Op: s.op.Kind,
		Pod: s.op.Pod, Step: s.op.Step, Of: s.begun, SizeBytes: s.op.SizeBytes, Began: began, TookNanos: took,
	}
	if failure != nil {
		c.Code, c.Error, c.Outcome = failure.Code, failure.Error(), failure.Outcome.String()
		c.NoEffect = errors.Is(failure, ErrNoEffect)
		c.Retry = s.op.Retry(l.row(s.id).recordOrEmpty())
	}
	l.cfg.OnCall(c)
}
