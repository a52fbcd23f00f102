package localdriver

import (
	"context"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
)

// callGrow is the name of the helper's call that grows a mounted file system.
const callGrow = "grow"

// Helper returns the calls of this package that a helper process serves.
func Helper() isolate.Service {
	return isolate.Service{Handlers: map[string]isolate.Handler{
		callGrow: isolate.Handle(func(_ context.Context, r growRequest) (any, error) {
			return nil, growMounted(r.FSType, r.Path, r.Bytes)
		}),
	}}
}

// growRequest asks to grow the file system mounted at Path to Bytes, the size of its device.
type growRequest struct {
	FSType string `json:"fsType"`
	Path   string `json:"path"`
	Bytes  int64  `json:"bytes"`
}

// grow grows the file system of v, mounted at path, to the size of the volume. If it is frozen, the kernel
// waits for the thaw, and no signal ends that wait.
func (d *Driver) grow(ctx context.Context, v volume, path string) error {
	if d.helpers == nil {
		return growMounted(v.Formatted, path, v.CapacityBytes)
	}
	r := growRequest{v.Formatted, path, v.CapacityBytes}
	_, err := isolate.Ask[any](ctx, d.helpers, "growth of "+path, callGrow, r)
	return err
}
