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
	// Migrated: the volume's source is that of an in-tree plugin, which the driver replaces.
	Migrated bool      `json:"migrated,omitempty"`
	Op       plan.Kind `json:"op"`
	// Step is how an Unpublish or Unstage unmounted before the driver was called;
	// "" if it left that to the driver.
	Step state.UnmountStep `json:"step,omitempty"`
	// SizeBytes is the size that an Expand asked for.
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// Pod is set if the call was for one pod.
	Pod   state.PodUID `json:"pod,omitempty"`
	Began time.Time    `json:"began"`
	// TookNanos is how long it took (ns), including the looks at the kernel.
	TookNanos time.Duration `json:"tookNanos"`
	// Code is the gRPC code's name; "" for OK, and if none was received.
	Code string `json:"code,omitempty"`
	// Error is the failure's text; "" for OK.
	Error string `json:"error,omitempty"`
	// Outcome is the failure's [state.Outcome], such as "uncertain"; "" for OK.
	Outcome string `json:"outcome,omitempty"`
	// NoEffect: the driver answered OK, and the kernel does not show the effect
	// ([ErrNoEffect]).
	NoEffect bool `json:"noEffect,omitempty"`
	// Of is the volume's record during the call.
	Of state.Volume `json:"-"`
	// Retry is the pacing in the record after a failure. After a success that lacks a part
	// ([state.Partly]) it has only the Call and the Error of that part.
	Retry state.Retry `json:"-"`
}

// reportCall passes a call that ended to [Config].OnCall.
func (l *loop) reportCall(s *start, r plan.Result, began time.Time, took time.Duration) {
	if l.cfg.OnCall == nil {
		return
	}
	c := EndedCall{
		Volume: s.id, Driver: s.driver.status.Name, Migrated: s.begun.Spec.Migrated, Op: s.op.Kind,
		Pod: s.op.Pod, Step: s.op.Step, Of: s.begun, SizeBytes: s.op.SizeBytes, Began: began, TookNanos: took,
	}
	if failure := failureOf(r); failure != nil {
		c.Code, c.Error, c.Outcome = failure.Code, failure.Error(), failure.Outcome.String()
		c.NoEffect = errors.Is(failure, ErrNoEffect)
		c.Retry = s.op.Retry(l.row(s.id).recordOrEmpty())
	} else if r.Err != nil {
		c.Retry = state.Retry{Call: r.Err.Call, Error: r.Err.Err.Error()}
	}
	l.cfg.OnCall(c)
}
