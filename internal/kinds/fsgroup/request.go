package fsgroup

import (
	"context"
	"os"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// ownRequest names a mount to give to its group.
type ownRequest struct {
	Root   string         `json:"root"`
	Volume state.VolumeID `json:"volume"`
	Mount  state.Mount    `json:"mount"`
}

// callOwn is the name of the helper's call that gives a mount to its group.
const callOwn = "own"

// Helper returns the calls of this package that a helper process serves.
func Helper() isolate.Service {
	return isolate.Service{Handlers: map[string]isolate.Handler{
		callOwn: isolate.Handle(doOwn), callOwner: isolate.Handle(doOwner),
	}}
}

// doOwn gives a mount to its group; it runs in the helper.
func doOwn(ctx context.Context, r ownRequest) (any, error) {
	return nil, withRoot(r.Root, func(root *os.File) error { return setGroup(ctx, root, r.Mount) })
}

// withRoot opens the node's root directory and passes it to call.
func withRoot(path string, call func(root *os.File) error) error {
	root, err := os.Open(path)
	if err != nil {
		return err
	}
	defer root.Close()
	return call(root)
}
