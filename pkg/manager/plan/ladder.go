package plan

import (
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Rung is one step of a ladder.
type Rung struct {
	Step state.UnmountStep
	// After is how long the unmount must have kept failing before the step is taken.
	After time.Duration
}

// Ladder lists the steps against an unmount that keeps failing, from the mildest to
// the hardest. The default is empty: only normal unmounts are made, since each other
// step may lose data that a pod wrote.
type Ladder []Rung

// Ladders are the ladders by driver; that of AnyDriver is for all other drivers.
type Ladders map[state.DriverName]Ladder

// AnyDriver stands for every driver that has no ladder of its own.
const AnyDriver state.DriverName = "*"

// Of returns the ladder for a driver's volumes.
func (l Ladders) Of(name state.DriverName) Ladder {
	if ladder, named := l[name]; named {
		return ladder
	}
	return l[AnyDriver]
}

// escalate returns op with the step that is due, and its pacing, adjusted: a new step
// does not wait for the pause after a milder one. No step is due until a normal unmount
// has failed in this run of the daemon, unless an operator ordered one.
func (c *chooser) escalate(op Op, r state.Retry) (Op, state.Retry) {
	switch {
	case !unmounts(op.Kind):
		return op, r
	case c.Order.Kind == op.Kind && c.Order.Pod == op.Pod:
		op.Step, r.NotBefore, r.Final = c.Order.Step, time.Time{}, false
		return op, r
	case r.Here.IsZero():
		return op, r
	}
	for _, rung := range c.Ladder {
		due := r.Here.Add(rung.After)
		if due.After(c.now) {
			if r.Final || due.Before(r.NotBefore) {
				r.NotBefore, r.Final = due, false
			}
			break
		}
		op.Step = rung.Step
	}
	if op.Step.Harder(r.Step) {
		r.NotBefore, r.Final = time.Time{}, false
	}
	return op, r
}

func unmounts(k Kind) bool { return k == Unpublish || k == Unstage }

// Stuck returns the unmount of v that does not succeed: the one in flight if there is
// one, else the first that has failed. stuck is false if there is neither.
func Stuck(v state.Volume, inFlight Op) (op Op, stuck bool) {
	if unmounts(inFlight.Kind) {
		return inFlight, true
	}
	for _, pod := range byUID(v.Mounts) {
		if m := v.Mounts[pod]; m.Phase == state.Leaving && m.Retry().Attempts > 0 {
			return Op{Kind: Unpublish, Pod: pod, Step: m.Retry().Step}, true
		}
	}
	return Op{Kind: Unstage, Step: v.Stage.Retry().Step}, v.Stage.Phase == state.Leaving && v.Stage.Retry().Attempts > 0
}

// UnmountProgress describes an unmount that has failed, or that is made by another than
// the normal step.
type UnmountProgress struct {
	Kind Kind         `json:"kind"`
	Pod  state.PodUID `json:"pod,omitempty"`
	// Path is the mount point to unmount.
	Path string `json:"path"`
	// Step is the step being tried, or tried last; "" is a normal unmount.
	Step state.UnmountStep `json:"step,omitempty"`
	// Since is when it first failed; zero if it has not.
	Since time.Time `json:"since,omitzero"`
	// Next is the next harder step of the ladder, and At is when it is due. Next is ""
	// if the ladder has none. At is zero until an unmount fails in this run of the daemon.
	Next state.UnmountStep `json:"next,omitempty"`
	At   time.Time         `json:"at,omitzero"`
}

// ProgressOf describes the unmount of v that does not succeed; nil if there is none.
func ProgressOf(v state.Volume, inFlight Op, l Ladder) *UnmountProgress {
	op, stuck := Stuck(v, inFlight)
	if !stuck {
		return nil
	}
	r, path := v.Stage.Retry(), v.Spec.StagePath
	if op.Kind == Unpublish {
		r, path = v.Mounts[op.Pod].Retry(), v.Mounts[op.Pod].Target
	}
	if r.Attempts == 0 && op.Step == state.UnmountNormal {
		return nil
	}
	c := &UnmountProgress{Kind: op.Kind, Pod: op.Pod, Path: path, Step: op.Step, Since: r.Since}
	for _, rung := range l {
		if !rung.Step.Harder(op.Step) {
			continue
		}
		c.Next = rung.Step
		if !r.Here.IsZero() {
			c.At = r.Here.Add(rung.After)
		}
		break
	}
	return c
}
