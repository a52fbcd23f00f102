package controller

import (
	"context"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// getVolumeHealth is the call of CSI 1.13 that replaced the VolumeCondition of ControllerGetVolume.
const getVolumeHealth = "ControllerGetVolumeHealth"

// Monitored is the volume of a claim whose driver reports volume health in its Controller service.
type Monitored struct {
	Driver state.DriverName
	// Claim is "namespace/name".
	Claim string
}

// Monitored returns the volumes that [Controller.Health] can ask about, whether or not they are on
// this node; nil if no driver reports health.
func (c *Controller) Monitored() map[state.VolumeID]Monitored {
	c.view.mu.Lock()
	defer c.view.mu.Unlock()
	if len(c.view.healthConns) == 0 {
		return nil
	}
	all := map[state.VolumeID]Monitored{}
	for key, s := range c.view.claims {
		if s.Volume != nil && s.Phase != Deleting && c.view.healthConns[s.Volume.Driver] != nil {
			all[s.Volume.ID()] = Monitored{s.Volume.Driver, key.String()}
		}
	}
	return all
}

// Health returns a function that asks the driver's Controller service about the health of a claim's
// volume. claim is "namespace/name". ok is false if the driver does not report health
// (GET_VOLUME_HEALTH, CSI 1.13 ControllerGetVolumeHealth), or if a call for the volume is in
// flight: there is one at a time.
func (c *Controller) Health(claim string, id state.VolumeID,
) (ask func(context.Context) ([]csiclient.Condition, error), ok bool) {
	namespace, name, _ := strings.Cut(claim, "/")
	key := Key{Namespace: namespace, Name: name}
	c.view.mu.Lock()
	defer c.view.mu.Unlock()
	s := c.view.claims[key]
	if s.Volume == nil || s.Phase == Deleting || s.Call != "" || s.Volume.ID() != id {
		return nil, false
	}
	for _, snap := range c.view.snapshots {
		if snap.Claim == key && snap.Call != "" {
			return nil, false
		}
	}
	conn, handle := c.view.healthConns[s.Volume.Driver], s.Volume.Handle
	if conn == nil {
		return nil, false
	}
	return func(ctx context.Context) ([]csiclient.Condition, error) { return health(ctx, conn, handle) }, true
}

func health(ctx context.Context, conn grpc.ClientConnInterface, handle string) ([]csiclient.Condition, error) {
	r, err := csi.NewControllerClient(conn).ControllerGetVolumeHealth(ctx,
		&csi.ControllerGetVolumeHealthRequest{VolumeId: handle})
	if err != nil {
		return nil, callError(getVolumeHealth, err)
	}
	return csiclient.VolumeConditions(r.GetVolumeHealth()), nil
}

// setHealthConn stores the connection of a driver that reports volume health, or removes it if conn
// is nil.
func (v *view) setHealthConn(driver state.DriverName, conn grpc.ClientConnInterface) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if conn != nil {
		v.healthConns[driver] = conn
		v.signal(true) // there are more volumes to ask about
	} else {
		delete(v.healthConns, driver)
	}
}
