package drivers

import (
	"context"
	"fmt"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Run has the controllers of the configuration called, and follow follows the registration of drivers, until ctx ends.
func (ds *Drivers) Run(ctx context.Context, follow func(context.Context) error) error {
	defer ds.Close()
	for name, at := range ds.Fixed {
		if _, err := ds.setController(ctx, name, at); err != nil {
			return err
		}
	}
	return follow(ctx)
}

// SetController has the Controller service of the driver called at an endpoint of its own. The
// channel gives the first answer: nil, or why there is none. An error means that the endpoint
// cannot be used, and that nothing has changed: a controller of the configuration stays where that says.
func (ds *Drivers) SetController(ctx context.Context, name state.DriverName, at controller.Endpoint,
) (<-chan error, error) {
	if fixed, ok := ds.Fixed[name]; ok && fixed != at {
		return nil, fmt.Errorf("the configuration says where the controller of driver %s is (driver-controller): at %s",
			name, fixed.Address)
	}
	return ds.setController(ctx, name, at)
}

// RemoveController undoes SetController, but not the configuration. The driver's own endpoint is asked for its
// Controller service when it registers next.
func (ds *Drivers) RemoveController(name state.DriverName) {
	if _, ok := ds.Fixed[name]; !ok {
		ds.replacePart(name, nil)
	}
}
