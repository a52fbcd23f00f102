package fsgroup

import (
	"context"
	"encoding/json"
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
	return isolate.Service{Handlers: map[string]isolate.Handler{callOwn: doOwn, callOwner: doOwner}}
}

// doOwn gives a mount to its group, in the helper.
func doOwn(ctx context.Context, request []byte) ([]byte, error) {
	var r ownRequest
	if err := json.Unmarshal(request, &r); err != nil {
		return nil, err
	}
	root, err := os.Open(r.Root)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return nil, own(ctx, root, r.Mount)
}

// ownAway has a helper give a mount to its group.
func ownAway(ctx context.Context, helpers *isolate.Pool, r ownRequest) error {
	request, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = helpers.Do(ctx, string(r.Volume), callOwn, request)
	return err
}
