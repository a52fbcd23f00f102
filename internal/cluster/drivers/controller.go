package drivers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// part is a driver's controller at an endpoint of its own.
type part struct {
	name   state.DriverName
	at     controller.Endpoint
	client *csiclient.Driver // set before the first report

	// The fields below are guarded by Drivers.mu.
	status Controller
	info   csiclient.Info
	lost   error        // why it is away
	asked  bool         // it has answered, or could not be reached
	first  []chan error // capacity 1, for its first report
	// told is the node part as the controller was told last; nil if it is down.
	told *controller.Driver
}

// Controller is the state of a driver's Controller service.
type Controller struct {
	// Endpoint is where it is, if that is not the driver's own; "" otherwise.
	Endpoint string
	Up       bool
	// Problem says why it is not up, or why it cannot attach volumes.
	Problem string
	Version string
	// Capabilities are those of the service by their CSI names, sorted.
	Capabilities []string
	// Generation counts how often it came up since the daemon started.
	Generation int
	Since      time.Time
}

// setController implements SetController.
func (ds *Drivers) setController(ctx context.Context, name state.DriverName, at controller.Endpoint,
) (<-chan error, error) {
	first := make(chan error, 1)
	if p := ds.part(name); p != nil && p.at == at {
		ds.mu.Lock()
		defer ds.mu.Unlock()
		if p.asked {
			first <- p.lost
		} else {
			p.first = append(p.first, first)
		}
		return first, nil
	}
	p := &part{name: name, at: at, first: []chan error{first}, status: Controller{
		Endpoint: at.Address, Problem: "it has not answered yet", Since: time.Now(),
	}}
	client := ds.Client(name)
	client.Name, client.Endpoint, client.NodeOnly, client.ControllerOnly = name, at.Address, false, true
	client.TLS = at.Credentials()
	made := make(chan struct{}) // closed once p.client is set
	client.OnChange = func(i csiclient.Info, lost error) { <-made; ds.partChanged(p, i, lost) }
	d, err := csiclient.Dial(ctx, client) // it lives until Close
	if err != nil {
		return nil, err
	}
	p.client = d
	ds.replacePart(name, p)
	close(made)
	return first, nil
}

// replacePart replaces the controller; p is nil to remove it.
func (ds *Drivers) replacePart(name state.DriverName, p *part) {
	ds.telling.Lock()
	ds.mu.Lock()
	old := ds.parts[name]
	delete(ds.parts, name)
	if p != nil {
		ds.parts[name] = p
	}
	ds.mu.Unlock()
	switch {
	case p != nil:
		ds.reportPart(p)
	case old != nil:
		ds.Loop.DriverAttaches(name, false, nil)
		ds.Controllers.DriverDown(name)
	}
	ds.telling.Unlock()
	if old != nil { // without the locks: Close waits for a running partChanged
		old.close(ds)
	}
	ds.shown()
}

func (p *part) close(ds *Drivers) {
	if err := p.client.Close(); err != nil {
		ds.Logger.Warn("connection to the controller cannot be closed", "driver", p.name, "err", err)
	}
}

// Close ends the connections to controllers, whose drivers Down has ended.
func (ds *Drivers) Close() {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	for name, p := range ds.parts {
		delete(ds.parts, name)
		defer p.close(ds)
	}
}

func (ds *Drivers) part(name state.DriverName) *part {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	return ds.parts[name]
}

func (ds *Drivers) shown() {
	if ds.Changed != nil {
		ds.Changed()
	}
}

// partChanged reports that a controller is gone, or is back.
func (ds *Drivers) partChanged(p *part, i csiclient.Info, lost error) {
	ds.telling.Lock()
	ds.mu.Lock()
	was := p.status
	p.status.Up, p.status.Problem, p.lost, p.asked = lost == nil, "", lost, true
	first := p.first
	p.first = nil
	if lost != nil {
		p.status.Problem = lost.Error()
	} else {
		p.info, p.told = i, nil
		p.status.Version, p.status.Capabilities = i.Version, i.ControllerCapabilities
		p.status.Generation++
	}
	if was.Up != p.status.Up {
		p.status.Since = time.Now()
	}
	current := ds.parts[p.name] == p
	ds.mu.Unlock()
	if current {
		ds.reportPart(p)
	}
	ds.telling.Unlock()
	for _, to := range first {
		to <- lost
	}
	ds.shown()
}

// reportPart reports a controller to the loop and the controller room. telling is held.
func (ds *Drivers) reportPart(p *part) {
	ds.mu.Lock()
	node, known := ds.nodes[p.name]
	s, attaches := p.status, p.info.Attach || p.status.Generation == 0
	d := controller.Driver{
		Name: p.name, Conn: p.client.Conn(), NodeID: node.NodeID, Topology: node.Topology,
		Node: &controller.NodePart{Expand: node.Expand},
	}
	if !known {
		d.Node.Unknown = fmt.Sprintf("the node part of driver %s has not registered since the daemon started", p.name)
	}
	same := s.Up && p.told != nil && equal(*p.told, d)
	p.told = nil
	if s.Up {
		p.told = &d
	}
	ds.mu.Unlock()
	why := ""
	switch {
	case !s.Up:
		why = fmt.Sprintf("the controller of driver %s at %s is away: %s", p.name, s.Endpoint, s.Problem)
	case p.info.Attach && known && node.NodeID == "":
		why = fmt.Sprintf("driver %s has PUBLISH_UNPUBLISH_VOLUME, but NodeGetInfo of its node part gives no node_id", p.name)
	}
	ds.Loop.DriverAttaches(p.name, attaches && ds.Cluster == nil, &why)
	switch {
	case !s.Up:
		ds.Controllers.DriverAbsent(p.name, controller.Absence{Problem: why, Code: state.ControllerAway})
	case !same:
		ds.Controllers.DriverUp(d)
	}
}

// equal reports whether the controller room knows the same of the node part.
func equal(a, b controller.Driver) bool {
	return a.NodeID == b.NodeID && *a.Node == *b.Node && maps.Equal(a.Topology, b.Topology)
}

// Controller returns the state of the driver's Controller service. It is not known of a driver that
// is not registered, nor in a cluster, whose sidecars call it.
func (ds *Drivers) Controller(name state.DriverName) (c Controller, known bool) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if p := ds.parts[name]; p != nil {
		c = p.status
		c.Capabilities = slices.Clone(c.Capabilities)
		return c, true
	}
	if ds.registered[name] == nil || ds.Cluster != nil {
		return Controller{}, false
	}
	i := ds.nodes[name]
	if !i.ControllerService {
		return Controller{Problem: "no Controller service is served at " + i.Endpoint}, true
	}
	return Controller{Up: true, Capabilities: slices.Clone(i.ControllerCapabilities)}, true
}
