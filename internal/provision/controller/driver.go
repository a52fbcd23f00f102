package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/status"

	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// askDeadline bounds one request for capabilities, which a driver answers from memory.
const askDeadline = 15 * time.Second

// driver is one driver that is up. A driver that comes up again gets a new one. Owned by Run.
type driver struct {
	Driver
	caps  caps
	known bool // caps have been read
	asked bool // caps have been requested
	retry state.Retry
	timer *time.Timer
	// attaching are callers that wait for the capabilities.
	attaching []*attachCall
	// cancel ends the request in flight.
	cancel context.CancelFunc
}

func (d *driver) problem() string {
	switch {
	case d.known:
		return ""
	case d.asking():
		return fmt.Sprintf("driver %s is being asked for its capabilities", d.Name)
	}
	return fmt.Sprintf("driver %s did not answer with its capabilities: %s", d.Name, describe(d.retry))
}

// cause is problem for programs. A driver that is being asked answers soon, or fails.
func (d *driver) cause() state.Cause {
	if d.known || d.asking() {
		return state.Cause{}
	}
	return state.Cause{Code: state.DriverSilent, Of: string(d.Name)}
}

// nodeUnknown says why NodeID, Topology and the Node service's capabilities are not known; "" if they are.
func (d *driver) nodeUnknown() string {
	if d.Node == nil {
		return ""
	}
	return d.Node.Unknown
}

func (d *driver) stopTimer() {
	if d.timer != nil {
		d.timer.Stop()
	}
}

// asking reports whether the driver has not answered its first request for capabilities yet.
func (d *driver) asking() bool { return !d.known && d.retry.Attempts == 0 }

// DriverUp records that a driver is registered and answers. If it was up already, it has restarted,
// and the new one replaces it.
func (c *Controller) DriverUp(up Driver) {
	c.post(func(ctx context.Context) {
		d := &driver{Driver: up}
		if old := c.drivers[up.Name]; old != nil {
			old.end()
			c.view.setHealthConn(up.Name, nil)
			d.attaching = old.attaching
		}
		c.drivers[up.Name] = d
		c.nodeIDs.called(up.Name, up.NodeID)
		delete(c.absent, up.Name)
		if !c.cfg.OnDemand || len(d.attaching) > 0 {
			c.askCaps(ctx, d)
		}
		c.touchAll(up.Name)
	})
}

// DriverDown records that a driver is gone. Its calls in flight end on their own.
func (c *Controller) DriverDown(name state.DriverName) { c.DriverAbsent(name, Absence{}) }

// DriverAbsent records that a driver's Controller service cannot be called, and why; the zero Absence
// is that of a driver which is not registered.
func (c *Controller) DriverAbsent(name state.DriverName, why Absence) {
	c.post(func(ctx context.Context) {
		was := c.absence(name)
		delete(c.absent, name)
		if why != (Absence{}) {
			c.absent[name] = why
		}
		d := c.drivers[name]
		if d != nil {
			d.end()
			c.view.setHealthConn(name, nil)
			delete(c.drivers, name)
			c.takeAttaches(ctx, d)
		}
		if d != nil || c.absence(name) != was {
			c.touchAll(name)
		}
	})
}

// absence says why the driver is not among those that are up.
func (c *Controller) absence(name state.DriverName) Absence {
	if why, ok := c.absent[name]; ok {
		return why
	}
	return Absence{fmt.Sprintf("driver %s is not registered", name), state.DriverAway}
}

// missing is what is known of a driver that is not up.
func (c *Controller) missing(name state.DriverName) driverFacts {
	why := c.absence(name)
	return driverFacts{Problem: why.Problem, Cause: state.Cause{Code: why.Code, Of: string(name)}}
}

func (d *driver) end() {
	d.stopTimer()
	if d.cancel != nil {
		d.cancel()
	}
}

// touchAll plans every claim, snapshot and group snapshot of the driver now, without back-off.
func (c *Controller) touchAll(name state.DriverName) {
	for key, e := range c.claims.entries {
		if driverOf(e) == name || e.rec.Spec.Driver == name {
			e.rec = clearPauses(e.rec)
			c.claims.touch(key)
		}
	}
	for key, e := range c.snapshots.entries {
		if e.driver() == name {
			e.rec.Content = clearPause(e.rec.Content)
			c.snapshots.touch(key)
		}
	}
	for _, e := range c.groups.entries {
		if e.driver() == name {
			e.rec.Content = clearPause(e.rec.Content)
			c.touchRows(e)
		}
	}
}

// ensureAsked requests the driver's capabilities unless that has been done.
func (c *Controller) ensureAsked(d *driver) {
	if d.asked {
		return
	}
	d.asked = true
	c.post(func(ctx context.Context) {
		if c.drivers[d.Name] == d {
			c.askCaps(ctx, d)
		}
	})
}

// askCaps reads the driver's capabilities, once each time it comes up (CSI 1.13 GetPluginInfo: they
// do not change within a version).
func (c *Controller) askCaps(ctx context.Context, d *driver) {
	d.asked = true
	ctx, d.cancel = context.WithTimeout(ctx, askDeadline)
	cancel := d.cancel
	c.calls.Go(func() {
		defer cancel()
		caps, err := readCaps(ctx, d.Driver)
		c.post(func(ctx context.Context) {
			if c.drivers[d.Name] != d {
				return // it went down or came up again
			}
			if err != nil {
				d.retry = addFailure(d.retry, err, time.Now())
				c.log.Warn("driver did not answer with its capabilities", "driver", string(d.Name), "err", err)
				d.timer = time.AfterFunc(time.Until(d.retry.NotBefore), func() {
					c.post(func(ctx context.Context) {
						if c.drivers[d.Name] == d {
							c.askCaps(ctx, d)
						}
					})
				})
			} else {
				d.caps, d.known, d.retry = caps, true, state.Retry{}
				if caps.Health {
					c.view.setHealthConn(d.Name, d.Conn)
				}
			}
			c.takeAttaches(ctx, d)
			c.touchAll(d.Name)
		})
	})
}

// takeAttaches handles the callers that waited for the driver's capabilities.
func (c *Controller) takeAttaches(ctx context.Context, d *driver) {
	nodes := d.attaching
	d.attaching = nil
	for _, n := range nodes {
		c.takeAttach(ctx, n)
	}
}

// readCaps asks a driver for its capabilities. It asks the Controller service only if the plugin
// has one (CSI 1.13 GetPluginCapabilities, CONTROLLER_SERVICE).
func readCaps(ctx context.Context, d Driver) (caps, *state.CallError) {
	plugin, err := csi.NewIdentityClient(d.Conn).GetPluginCapabilities(ctx, &csi.GetPluginCapabilitiesRequest{})
	if err != nil {
		return caps{}, callError("GetPluginCapabilities", err)
	}
	all := pluginCaps(plugin)
	if e := readNodeCaps(ctx, d, &all); e != nil {
		return caps{}, e
	}
	if hasGroups(plugin) {
		group, err := csi.NewGroupControllerClient(d.Conn).GroupControllerGetCapabilities(ctx,
			&csi.GroupControllerGetCapabilitiesRequest{})
		// A driver with a broken GroupController service can still serve volumes.
		if e := callError("GroupControllerGetCapabilities", err); err != nil && e.Outcome == state.Uncertain {
			return caps{}, e
		}
		makes := func(g *csi.GroupControllerServiceCapability) bool {
			return g.GetRpc().GetType() == csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT
		}
		all.Group = err == nil && slices.ContainsFunc(group.GetCapabilities(), makes)
	}
	if !all.Controller {
		return all, nil
	}
	controller, err := csi.NewControllerClient(d.Conn).ControllerGetCapabilities(ctx,
		&csi.ControllerGetCapabilitiesRequest{})
	if err != nil {
		return caps{}, callError("ControllerGetCapabilities", err)
	}
	controllerCaps(&all, controller)
	return all, nil
}

// readNodeCaps adds the capability of the Node service to all.
func readNodeCaps(ctx context.Context, d Driver, all *caps) *state.CallError {
	if d.Node != nil {
		all.NodeExpand = d.Node.Expand
		return nil
	}
	node, err := csi.NewNodeClient(d.Conn).NodeGetCapabilities(ctx, &csi.NodeGetCapabilitiesRequest{})
	if err != nil {
		return callError("NodeGetCapabilities", err)
	}
	all.NodeExpand = slices.ContainsFunc(node.GetCapabilities(), func(n *csi.NodeServiceCapability) bool {
		return n.GetRpc().GetType() == csi.NodeServiceCapability_RPC_EXPAND_VOLUME
	})
	return nil
}

func pluginCaps(answer *csi.GetPluginCapabilitiesResponse) caps {
	var i csiclient.Info
	i.AddPlugin(answer)
	return caps{
		Controller: i.ControllerService, Topology: i.Topological, Online: i.OnlineExpand, Offline: i.OfflineExpand,
		Blocks: i.SnapshotMetadata,
	}
}

// hasGroups reports whether the plugin has a GroupController service.
func hasGroups(answer *csi.GetPluginCapabilitiesResponse) bool {
	return slices.ContainsFunc(answer.GetCapabilities(), func(p *csi.PluginCapability) bool {
		return p.GetService().GetType() == csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE
	})
}

func controllerCaps(all *caps, answer *csi.ControllerGetCapabilitiesResponse) {
	for _, r := range answer.GetCapabilities() {
		switch r.GetRpc().GetType() {
		case csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME:
			all.Create = true
		case csi.ControllerServiceCapability_RPC_EXPAND_VOLUME:
			all.Expand = true
		case csi.ControllerServiceCapability_RPC_CLONE_VOLUME:
			all.Clone = true
		case csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT:
			all.Snapshot = true
		case csi.ControllerServiceCapability_RPC_LIST_VOLUMES:
			all.ListVolumes = true
		case csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS:
			all.ListSnapshots = true
		case csi.ControllerServiceCapability_RPC_GET_CAPACITY:
			all.Capacity = true
		case csi.ControllerServiceCapability_RPC_MODIFY_VOLUME:
			all.Modify = true
		case csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER:
			all.MultiWriter = true
		case csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH:
			all.Health = true
		}
	}
}

// callError classifies err, the error of the named call, by the code table. Its text is only the
// driver's message.
func callError(call string, err error) *state.CallError {
	e := state.AsCallError(call, csiclient.CallError(call, err))
	if answer, ok := errors.AsType[statusError](e.Err); ok {
		short := *e
		short.Err = errors.New(answer.GRPCStatus().Message())
		return &short
	}
	return e
}

// statusError is an error from a driver or the transport.
type statusError interface {
	error
	GRPCStatus() *status.Status
}
