package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// controllerPatience is how long a registration waits for the first answer of a controller. One that
// is late is registered too.
const controllerPatience = 5 * time.Second

// addController has the driver's controller called at an endpoint. undo puts back what was before. A
// controller with another driver's name is refused; of one that does not answer, note says so.
func (r *Registrar) addController(ctx context.Context, name state.DriverName, at controller.Endpoint) (
	undo func(), note string, err error,
) {
	before, err := r.recorded(ctx, name)
	if err != nil {
		return nil, "", err
	}
	undo = func() {
		if before == nil {
			r.c.Controllers.RemoveController(name)
		} else if _, err := r.c.Controllers.SetController(ctx, name, *before); err != nil {
			r.c.Logger.Error("controller of a driver cannot be called", "driver", name, "endpoint", before.Address, "err", err)
		}
	}
	first, err := r.c.Controllers.SetController(ctx, name, at)
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", server.ErrConflict, err)
	}
	late := time.NewTimer(controllerPatience)
	defer late.Stop()
	select {
	case err = <-first:
	case <-late.C:
		note = fmt.Sprintf("its controller at %s has not answered yet: csi-volmgr explain driver %s", at.Address, name)
		return undo, note, nil
	case <-ctx.Done():
		undo()
		return nil, "", context.Cause(ctx)
	}
	switch {
	case errors.Is(err, csiclient.ErrName):
		undo()
		return nil, "", fmt.Errorf("%w: register the controller at %s: %w", server.ErrConflict, at.Address, err)
	case err != nil:
		note = fmt.Sprintf("its controller at %s is away, and is called as soon as it answers: %v", at.Address, err)
	}
	return undo, note, nil
}

// recorded returns the endpoint of the driver's controller in the journal; nil if there is none.
func (r *Registrar) recorded(ctx context.Context, name state.DriverName) (*controller.Endpoint, error) {
	values, err := r.c.Journal.LoadBucket(context.WithoutCancel(ctx), operatorBucket)
	if err != nil {
		return nil, fmt.Errorf("read the controller of driver %s: %w", name, err)
	}
	if _, registered := values.Sound[registeredPrefix+string(name)]; !registered {
		return nil, nil
	}
	return endpointIn(values, name)
}

// endpointIn returns the endpoint of the driver's controller among values; nil if there is none.
func endpointIn(values state.Values, name state.DriverName) (*controller.Endpoint, error) {
	data, ok := values.Sound[controllerPrefix+string(name)]
	if why, bad := values.Unreadable[controllerPrefix+string(name)]; bad {
		return nil, fmt.Errorf("endpoint of the controller of driver %s cannot be read; register it again: %s", name, why)
	}
	if !ok {
		return nil, nil
	}
	var at controller.Endpoint
	if err := json.Unmarshal(data, &at); err != nil {
		return nil, fmt.Errorf("endpoint of the controller of driver %s cannot be read; register it again: %w", name, err)
	}
	return &at, nil
}

// setRecorded has the driver's controller called at the endpoint among values, if there is one.
func (r *Registrar) setRecorded(ctx context.Context, name state.DriverName, values state.Values) {
	at, err := endpointIn(values, name)
	if err == nil && at != nil {
		_, err = r.c.Controllers.SetController(ctx, name, *at)
	}
	if err != nil {
		r.c.Logger.Error("controller of a driver cannot be called", "driver", name, "err", err)
	}
}

// record makes a registration durable. Without an endpoint of its controller, one that a driver of this
// name had before is forgotten. A write that is cut off may be in effect at the next start.
func (r *Registrar) record(ctx context.Context, name state.DriverName, endpoint string, at *controller.Endpoint) error {
	values := map[string][]byte{registeredPrefix + string(name): []byte(endpoint), controllerPrefix + string(name): nil}
	if at != nil {
		data, err := json.Marshal(at)
		if err != nil {
			return fmt.Errorf("record the controller of driver %s: %w", name, err)
		}
		values[controllerPrefix+string(name)] = data
	}
	return r.c.Journal.CommitBucket(context.WithoutCancel(ctx), operatorBucket, values)
}
