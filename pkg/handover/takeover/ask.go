package takeover

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/handover"
	"github.com/csi-volmgr/csi-volmgr/pkg/registration"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// driversTime is how long drivers may take to say what they can do; some may not run.
const driversTime = 10 * time.Second

// askDrivers returns what those drivers can do that are registered and answer.
func (t *Transfer) askDrivers(ctx context.Context) map[state.DriverName]handover.Abilities {
	ctx, cancel := context.WithTimeout(ctx, driversTime)
	defer cancel()
	a := &asked{t: t, can: map[state.DriverName]handover.Abilities{}}
	// As one beside a kubelet, so that no registrar is told anything.
	w := registration.New(registration.Config{Dir: t.c.RegistrationDir, Shared: true, Handler: a, Logger: t.c.Logger})
	go func() {
		defer cancel()
		select {
		case <-w.Synced():
		case <-ctx.Done():
		}
	}()
	if err := w.Run(ctx); err != nil && ctx.Err() == nil {
		t.c.Logger.Warn("drivers cannot be asked what they can do", "err", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.can)
}

// asked notes what drivers can do (registration.Handler).
type asked struct {
	t   *Transfer
	mu  sync.Mutex // guards can
	can map[state.DriverName]handover.Abilities
}

// Up asks the driver and is done with it.
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

// Down is of no interest: what a driver said holds.
func (*asked) Down(registration.Plugin, string) {}
