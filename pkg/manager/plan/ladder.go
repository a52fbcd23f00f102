package plan

import (
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Rung is one step of a ladder.
type Rung struct {
	Step state.UnmountStep
	// After is how long the unmount has to have failed before.
	After time.Duration
}

// Ladder is what is done about an unmount that keeps failing, from the mildest
// step to the hardest. An empty one, which is the default, has normal unmounts
// only: each other step may lose what a pod wrote.
type Ladder []Rung

// Ladders are ladders by driver; AnyDriver is every other one.
type Ladders map[state.DriverName]Ladder

// AnyDriver stands for drivers that are not named.
const AnyDriver state.DriverName = "*"

// Of returns the ladder of a driver's volumes.
func (l Ladders) Of(name state.DriverName) Ladder {
	if ladder, named := l[name]; named {
		return ladder
	}
	return l[AnyDriver]
}

// escalate returns op with the step that is due, and its pacing as that changes it:
// a step that is new is not held up by the pause after a milder one. Nothing is
// due before a normal unmount has failed in this run of the daemon, unless an
// operator asked for it.
func (c *chooser) escalate(op Op, r state.Retry) (Op, state.Retry) {
	switch {
	case !unmounts(op.Kind):
		return op, r
	case c.order.Kind == op.Kind && c.order.Pod == op.Pod:
		op.Step, r.NotBefore, r.Final = c.order.Step, time.Time{}, false
		return op, r
	case r.Here.IsZero():
		return op, r
	}
	for _, rung := range c.ladder {
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

// Stuck returns the unmount of v that does not succeed: the one
// in flight, if there is one, else the first that has failed; none where there is no such.
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

// UnmountProgress is how far an unmount is that has failed, or that is made otherwise
// than normally.
type UnmountProgress struct {
	Kind Kind         `json:"kind"`
	Pod  state.PodUID `json:"pod,omitempty"`
	// Path is what is to be unmounted.
	Path string `json:"path"`
	// Step is what is being tried, or was tried last; "" is a normal unmount.
	Step state.UnmountStep `json:"step,omitempty"`
	// Since is when it failed first; zero where it has not.
	Since time.Time `json:"since,omitzero"`
	// Next is the harder step that comes next by policy, and At when; "" where
	// none comes by itself. At is zero while nothing failed since the daemon started.
	Next state.UnmountStep `json:"next,omitempty"`
	At   time.Time         `json:"at,omitzero"`
}

// ProgressOf returns how far the unmount of v is that does not succeed, nil where there is none.
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
