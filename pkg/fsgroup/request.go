package fsgroup

import (
	"context"
	"os"

	"github.com/csi-volmgr/csi-volmgr/pkg/isolate"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// ownRequest is a mount that is to be given to its group.
type ownRequest struct {
	Root   string         `json:"root"`
	Volume state.VolumeID `json:"volume"`
	Mount  state.Mount    `json:"mount"`
}

// callOwn is the name of the helper's call that gives a mount to its group.
const callOwn = "own"

// Helper returns the calls of a helper process for this package.
func Helper() isolate.Service {
	return isolate.Service{Handlers: map[string]isolate.Handler{
		callOwn: isolate.Handle(doOwn), callOwner: isolate.Handle(doOwner),
	}}
}

// doOwn gives a mount to its group, in the helper.
func doOwn(ctx context.Context, r ownRequest) (any, error) {
	return nil, inRoot(r.Root, func(root *os.File) error { return own(ctx, root, r.Mount) })
}

// inRoot opens the node's root directory for a call in the helper.
func inRoot(path string, call func(root *os.File) error) error {
	root, err := os.Open(path)
	if err != nil {
		return err
	}
	defer root.Close()
	return call(root)
}
