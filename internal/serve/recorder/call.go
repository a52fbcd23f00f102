package recorder

import (
	"cmp"
	"slices"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// call is the compact form of a [manager.EndedCall]: a sixth of its size, since up to
// PerVolume times Volumes are kept. It also drops the call's copy of the volume's
// record, which would keep alive values that later records have replaced.
type call struct {
	driver    state.DriverName
	pod       state.PodUID
	began     time.Time
	took      time.Duration
	sizeBytes int64
	step      state.UnmountStep
	failed    *failure // nil for OK
	op        plan.Kind
	migrated  bool
}

// failure is what else is kept of a failed call.
type failure struct {
	code, text, outcome string
	noEffect            bool
}

func compact(c manager.EndedCall) call {
	k := call{
		driver: c.Driver, pod: c.Pod, began: c.Began, took: c.TookNanos, sizeBytes: c.SizeBytes,
		step: c.Step, op: c.Op, migrated: c.Migrated,
	}
	if f := (failure{c.Code, c.Error, c.Outcome, c.NoEffect}); f != (failure{}) {
		k.failed = &f
	}
	return k
}

// appendTo appends the calls in their original form, in the order of recording.
func (k *kept) appendTo(out []manager.EndedCall) []manager.EndedCall {
	for _, c := range k.calls {
		e := manager.EndedCall{
			Volume: k.volume, Driver: c.driver, Pod: c.pod, Began: c.began, TookNanos: c.took, SizeBytes: c.sizeBytes,
			Step: c.step, Op: c.op, Migrated: c.migrated,
		}
		if f := c.failed; f != nil {
			e.Code, e.Error, e.Outcome, e.NoEffect = f.code, f.text, f.outcome, f.noEffect
		}
		out = append(out, e)
	}
	return out
}

func inOrder(out []manager.EndedCall) []manager.EndedCall {
	slices.SortStableFunc(out, func(a, b manager.EndedCall) int {
		return cmp.Or(a.Began.Compare(b.Began), cmp.Compare(a.Volume, b.Volume))
	})
	return out
}
