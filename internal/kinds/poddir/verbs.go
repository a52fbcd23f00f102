package poddir

import (
	"context"
	"fmt"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Verbs are those of a kind whose mounts are never renewed: manager.Driver, without the time
// at which Publish has to be repeated.
type Verbs interface {
	Stage(ctx context.Context, v state.Volume) error
	Publish(ctx context.Context, v state.Volume, pod state.PodUID) error
	Unpublish(ctx context.Context, v state.Volume, pod state.PodUID) error
	Unstage(ctx context.Context, v state.Volume) error
	Expand(ctx context.Context, v state.Volume, pod state.PodUID, bytes int64) (int64, error)
}

// PublishOnly implements the verbs that a kind without a stage does not support. Its
// driver embeds PublishOnly.
type PublishOnly struct{ Kind state.DriverName }

// Stage fails: the kind does not support it.
func (p PublishOnly) Stage(context.Context, state.Volume) error { return p.unsupported("Stage") }

// Unstage fails: the kind does not support it.
func (p PublishOnly) Unstage(context.Context, state.Volume) error { return p.unsupported("Unstage") }

// Expand fails: the kind does not support it.
func (p PublishOnly) Expand(context.Context, state.Volume, state.PodUID, int64) (int64, error) {
	return 0, p.unsupported("Expand")
}

func (p PublishOnly) unsupported(call string) error {
	err := fmt.Errorf("%s volumes do not support %s", p.Kind, call)
	return &state.CallError{Outcome: state.Final, Call: call, Err: err}
}

// Refused returns err as the refusal of a call: repeating the same call would not help.
func Refused(call string, err error) error {
	return &state.CallError{Outcome: state.Refused, Call: call, Err: err}
}

// Begin starts a Publish: it returns the record of pod's mount and the volume's
// directory, or a refusal. If ctx has ended, it returns the cause.
func Begin(ctx context.Context, l state.Layout, v state.Volume, pod state.PodUID) (state.Mount, Dir, error) {
	m, ok := v.Mounts[pod]
	if !ok {
		return state.Mount{}, Dir{}, Refused("Publish", fmt.Errorf("the record has no mount for pod %s", pod))
	}
	dir, err := Of(l, v, pod)
	if err != nil {
		return state.Mount{}, Dir{}, Refused("Publish", err)
	}
	if ctx.Err() != nil {
		return state.Mount{}, Dir{}, context.Cause(ctx)
	}
	return m, dir, nil
}

// Remover unpublishes volumes that consist only of their directory, its mount and its
// content. The driver of such a kind embeds Remover.
type Remover struct {
	Layout state.Layout
	Kernel *mount.Kernel
}

// Unpublish unmounts the volume's directory and removes it.
func (r Remover) Unpublish(ctx context.Context, v state.Volume, pod state.PodUID) error {
	dir, err := Of(r.Layout, v, pod)
	if err != nil {
		return Refused("Unpublish", err)
	}
	return dir.Remove(ctx, r.Kernel)
}
