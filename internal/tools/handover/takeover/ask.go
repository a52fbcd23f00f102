package takeover

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/tools/handover"
	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/registration"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// driversTime is how long drivers may take to report their capabilities; some may not be running.
const driversTime = 10 * time.Second

// askDrivers returns the capabilities of the registered drivers that answer.
func (t *Transfer) askDrivers(ctx context.Context) map[state.DriverName]handover.Abilities {
	ctx, cancel := context.WithTimeout(ctx, driversTime)
	defer cancel()
	a := &asked{t: t, can: map[state.DriverName]handover.Abilities{}}
	// Shared, as beside a kubelet, so that registrars are not notified.
	w := registration.New(registration.Config{Dir: t.c.RegistrationDir, Shared: true, Handler: a, Logger: t.c.Logger})
	go func() {
		defer cancel()
		select {
		case <-w.Synced():
		case <-ctx.Done():
		}
	}()
	if err := w.Run(ctx); err != nil && ctx.Err() == nil {
		t.c.Logger.Warn("cannot ask drivers for their capabilities", "err", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.can)
}

// asked is a registration.Handler that records drivers' capabilities.
type asked struct {
	t   *Transfer
	mu  sync.Mutex // guards can
	can map[state.DriverName]handover.Abilities
}

// Up asks the driver for its capabilities and closes the connection.
func (a *asked) Up(ctx context.Context, p registration.Plugin) error {
	c := a.t.c.Client(p.Name)
	c.Name, c.Endpoint = p.Name, p.Endpoint
	d, err := csiclient.Dial(ctx, c)
	if err != nil {
		return err
	}
	i := d.Info()
	a.mu.Lock()
	a.can[p.Name] = handover.Abilities{Stage: i.Stage, MountGroup: i.MountGroup}
	a.mu.Unlock()
	return d.Close()
}

// Down does nothing; a driver's answer stays valid.
func (*asked) Down(registration.Plugin, string) {}
