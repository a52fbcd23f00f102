// Package drivers keeps the node's registered CSI drivers: it dials each driver that
// registers, and its controller if that has an endpoint of its own, and reports them to
// the loop, the controller and the cluster.
//
// It owns the connections of registered drivers and of their controllers.
//
// It does not watch registration sockets (pkg/registration), call a driver itself except
// to ask for its limit of volumes, or decide about a volume.
package drivers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/csi-volmgr/csi-volmgr/internal/cluster/report"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/registration"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Loop is the volume manager, as far as drivers are reported to it.
type Loop interface {
	DriverUp(info manager.DriverInfo, d manager.Driver)
	DriverDown(name state.DriverName, reason string)
	DriverAttaches(name state.DriverName, attaches bool, why *string)
	DriverLimit(name state.DriverName, count int64)
}

// Controllers is notified of drivers with a Controller service.
type Controllers interface {
	DriverUp(d controller.Driver)
	DriverDown(name state.DriverName)
	DriverAbsent(name state.DriverName, why controller.Absence)
}

// Cluster is notified of registered drivers.
type Cluster interface {
	DriverUp(d report.Driver)
	DriverDown(name state.DriverName)
}

// Config is the configuration of [Drivers]. Every field except Cluster and Changed is required.
type Config struct {
	Loop        Loop
	Controllers Controllers
	Cluster     Cluster // nil without an API server
	// Client returns the configuration of a driver's client without Name, Endpoint and OnChange.
	Client func(name state.DriverName) csiclient.Config
	// Serve returns the driver that the loop calls.
	Serve  func(d *csiclient.Driver, i csiclient.Info) manager.Driver
	Logger *slog.Logger
	// Fixed are the endpoints of controllers that the configuration gives.
	Fixed map[state.DriverName]controller.Endpoint
	// Changed is called after a change of what [Drivers.Controller] returns; nil calls nothing.
	Changed func()
}

// Drivers keeps the registered drivers. Its methods may be called from any goroutine.
type Drivers struct {
	Config

	telling sync.Mutex // held while parts are reported, so that reports are in the order of events

	mu         sync.Mutex // guards the fields below, and those of what they hold
	registered map[state.DriverName]*connection
	parts      map[state.DriverName]*part // controllers with an endpoint of their own
	// nodes is what the node part of each driver said last.
	nodes map[state.DriverName]csiclient.Info
}

// New returns a Drivers without any driver.
func New(c Config) *Drivers {
	return &Drivers{
		Config: c, registered: map[state.DriverName]*connection{}, parts: map[state.DriverName]*part{},
		nodes: map[state.DriverName]csiclient.Info{},
	}
}

// connection is the connection to a registered driver.
type connection struct {
	mu     sync.Mutex // held while the driver comes up, so that its loss is reported after that
	driver *csiclient.Driver
}

// Up makes a driver that registered available (registration.Handler). It returns
// [registration.ErrRefused] if the driver answers with another name.
func (ds *Drivers) Up(ctx context.Context, p registration.Plugin) error {
	c := &connection{}
	c.mu.Lock()
	defer c.mu.Unlock()
	client := ds.Client(p.Name)
	client.Name, client.Endpoint = p.Name, p.Endpoint
	client.NodeOnly = client.NodeOnly || ds.part(p.Name) != nil
	client.OnChange = func(i csiclient.Info, lost error) { ds.changed(c, i, lost) }
	d, err := csiclient.Dial(ctx, client)
	if errors.Is(err, csiclient.ErrName) {
		err = fmt.Errorf("%w: %w", registration.ErrRefused, err)
	}
	if err != nil {
		ds.Loop.DriverDown(p.Name, err.Error())
		return err
	}
	c.driver = d
	ds.mu.Lock()
	ds.registered[p.Name] = c
	ds.mu.Unlock()
	ds.reportUp(d, d.Info())
	return nil
}

// Down undoes Up (registration.Handler).
func (ds *Drivers) Down(p registration.Plugin, reason string) {
	ds.mu.Lock()
	c := ds.registered[p.Name]
	delete(ds.registered, p.Name)
	ds.mu.Unlock()
	// Close first: after that, OnChange can no longer report that the driver is back.
	if err := c.driver.Close(); err != nil {
		ds.Logger.Warn("connection to the driver cannot be closed", "driver", p.Name, "err", err)
	}
	ds.reportDown(p.Name, reason)
	if ds.Cluster != nil {
		ds.Cluster.DriverDown(p.Name)
	}
}

// changed reports that the driver's process is gone, or is back.
func (ds *Drivers) changed(c *connection, i csiclient.Info, lost error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if lost != nil {
		ds.reportDown(i.Name, lost.Error())
	} else {
		ds.reportUp(c.driver, i)
	}
}

func (ds *Drivers) reportUp(d *csiclient.Driver, i csiclient.Info) {
	ds.telling.Lock()
	defer ds.telling.Unlock()
	ds.mu.Lock()
	ds.nodes[i.Name] = i
	p := ds.parts[i.Name]
	ds.mu.Unlock()
	ds.Loop.DriverUp(manager.DriverInfo{
		Name: i.Name, Endpoint: i.Endpoint, Version: i.Version, NodeID: i.NodeID, Topology: i.Topology,
		MaxVolumes: i.MaxVolumes, Capabilities: i.Capabilities,
		Stage: i.Stage, Expand: i.Expand, Attach: i.Attach && ds.Cluster == nil, MountGroup: i.MountGroup,
		Offline:      i.OfflineExpand && !i.OnlineExpand,
		MountsTarget: true, Deadline: ds.Client(i.Name).Deadlines.Longest(),
	}, ds.Serve(d, i))
	if ds.Cluster != nil {
		ds.Cluster.DriverUp(report.Driver{Name: i.Name, NodeID: i.NodeID, Topology: i.Topology, MaxVolumes: i.MaxVolumes})
	}
	switch {
	case p != nil:
		ds.reportPart(p)
	case i.ControllerService:
		ds.Controllers.DriverUp(controller.Driver{Name: i.Name, Conn: d.Conn(), NodeID: i.NodeID, Topology: i.Topology})
	default:
		ds.Controllers.DriverAbsent(i.Name, controller.Absence{
			Problem: fmt.Sprintf("driver %s is up at %s, and serves no Controller service there: its controller has an "+
				"endpoint of its own, or it has none", i.Name, i.Endpoint),
			Code: state.NoController,
		})
	}
}

func (ds *Drivers) reportDown(name state.DriverName, reason string) {
	ds.telling.Lock()
	defer ds.telling.Unlock()
	ds.Loop.DriverDown(name, reason)
	if ds.part(name) == nil { // else the controller may still be called
		ds.Controllers.DriverDown(name)
	}
}

// Limit asks a registered driver for its limit of volumes, and passes it to the loop.
func (ds *Drivers) Limit(ctx context.Context, name state.DriverName) (int64, error) {
	ds.mu.Lock()
	c := ds.registered[name]
	ds.mu.Unlock()
	if c == nil {
		return 0, fmt.Errorf("ask driver %s for its limit of volumes: it is not registered", name)
	}
	count, err := c.driver.MaxVolumes(ctx)
	if err != nil {
		return 0, fmt.Errorf("ask driver %s for its limit of volumes: %w", name, err)
	}
	ds.Loop.DriverLimit(name, count)
	return count, nil
}

// Registered returns the currently registered drivers.
func (ds *Drivers) Registered() map[state.DriverName]*csiclient.Driver {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	all := make(map[state.DriverName]*csiclient.Driver, len(ds.registered))
	for name, c := range ds.registered {
		all[name] = c.driver
	}
	return all
}
